// What a loaded model holds. Private to the model room.
#pragma once

#include <optional>
#include <vector>

#include "model/model.h"
#include "model/rope.h"

namespace octalane {

/// y = x W^T (+ bias, when the file has one).
struct Product {
  Linear weights;
  std::vector<float> bias;
};

struct Layer {
  std::vector<float> attention_norm, q_norm, k_norm, feed_forward_norm;  // q_norm, k_norm: empty without head norms
  Product q, k, v, output, gate, up, down;
};

/// Rows of token_embd.weight in the file, for models whose head is another matrix.
struct FileRows {
  Checkpoint file;  // keeps the mapping
  StoredMatrix rows;
};

struct Model::State {
  ModelConfig config;
  Rope rope;
  std::optional<FileRows> embedding;  // empty: tied, rows come from the packed head
  std::vector<Layer> layers;
  std::vector<float> output_norm;
  Product head;
  std::vector<const Linear*> linears;  // by list_linears

  /// visit(weights) for every product, in order of use.
  template <class Visit>
  void for_each_linear(Visit visit) {
    for (Layer& layer : layers) {
      for (Product* product : {&layer.q, &layer.k, &layer.v, &layer.output, &layer.gate, &layer.up, &layer.down}) {
        visit(product->weights);
      }
    }
    visit(head.weights);
  }
  void list_linears() {
    linears.clear();
    for_each_linear([&](const Linear& weights) { linears.push_back(&weights); });
  }
};

}  // namespace octalane
