// The table of the probe's multiply loops: kernels of device/probe.cu, and what they do.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cuda/session.h"

namespace octalane::cuda {

enum class Element { s8, e4m3, bf16, f16 };

/// One kernel and the operations of an iteration of a block.
struct Loop {
  const char* instruction;
  const char* ptx;
  const char* isa;
  Element element;
  bool emulated;
  int drain_columns;  ///< 0: none
  std::string function;
  Grid grid;  ///< of one block
  int64_t outputs, columns, results_per_thread;
  int operand_bytes, scales;

  bool integer_results() const { return element == Element::s8 && drain_columns == 0; }
  double ops() const { return 2.0 * static_cast<double>(outputs * columns); }
};

/// The loops of a device of this compute capability; none when this build has no code for it.
std::vector<Loop> loops_for(int capability);

const char* lane_name(Element element);
const char* element_name(Element element);

/// `bytes` bytes of operands: ones, or random finite values. A multiple of 4.
std::vector<std::byte> operands_of(Element element, int bytes, bool ones);

}  // namespace octalane::cuda
