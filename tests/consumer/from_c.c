#include <octalane/octalane.h>
#include <stdio.h>
#include <string.h>

#include "problem.h"

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, octalane_last_error());
  return 1;
}

int main(void) {
  static Problem problem;
  static float y[TOKENS * ROWS];
  make_problem(&problem);

  octalane_context* context = NULL;
  if (octalane_context_create(NULL, &context) != OCTALANE_OK) return failed("context");

  octalane_weights* weights = NULL;
  if (octalane_weights_bind(context, "q8_0", problem.q8_0, sizeof problem.q8_0, ROWS, COLS, &weights) != OCTALANE_OK) {
    return failed("bind");
  }
  if (octalane_multiply(context, weights, problem.x, TOKENS, COLS, y, ROWS) != OCTALANE_OK) return failed("multiply");
  const int i = first_difference(&problem, y);
  if (i >= 0) {
    fprintf(stderr, "y[%d, %d]: wanted %.9g, got %.9g\n", i / ROWS, i % ROWS, (double)problem.wanted[i], (double)y[i]);
    return 1;
  }

  octalane_weights* none = NULL;
  const octalane_status refused =
      octalane_weights_bind(context, "q8_0", problem.q8_0, sizeof problem.q8_0, ROWS, COLS + 1, &none);
  if (refused != OCTALANE_ERROR || none != NULL || strstr(octalane_last_error(), "97") == NULL) {
    return failed("97 columns must be refused by name");
  }

  octalane_weights_free(weights);
  octalane_context_free(context);
  printf("octalane %s: %d x %d x %d from C, as the plain loop\n", octalane_version(), TOKENS, ROWS, COLS);
  return 0;
}
