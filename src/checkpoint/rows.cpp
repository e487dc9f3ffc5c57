#include "checkpoint/rows.h"

#include "checkpoint/hf_config.h"

namespace octalane {

Expected<RowOrder> row_order(const Checkpoint& from, const CheckpointTensor& tensor, Container to) {
  const std::string_view role = tensor.role;
  const bool turns = role.ends_with(".attn_q.weight") || role.ends_with(".attn_k.weight") ||
                     role.ends_with(".attn_q.bias") || role.ends_with(".attn_k.bias");
  const GgufFile& metadata = from.metadata();
  const auto architecture = metadata.get<std::string_view>("general.architecture");
  if (!turns || !architecture) return RowOrder{};
  const bool llama = *architecture == "llama";
  const auto said = metadata.get_or<std::string_view>(kRopePairsKey, llama ? "adjacent" : "halves");
  if (!said) return fail_with(said);
  const bool from_halves = *said == "halves", to_halves = to == Container::folder || !llama;
  if (from_halves == to_halves) return RowOrder{};

  const auto number = [&](const char* name, int64_t fallback) {
    return metadata.get_or<int64_t>(fmt::format("{}.{}", *architecture, name), fallback).value_or(0);
  };
  const int64_t heads = number("attention.head_count", 0);
  const int64_t head_rows = number("attention.key_length", heads > 0 ? number("embedding_length", 0) / heads : 0);
  const int64_t rows = tensor.shape.size() > 1 ? tensor.rows() : tensor.cols();
  if (head_rows < 2 || head_rows % 2 != 0 || rows % head_rows != 0) {
    return fail("{}: wanted whole heads to put in another order, got {} rows for heads of {}", tensor.name, rows,
                head_rows);
  }
  if (const int64_t turned = number("rope.dimension_count", head_rows); turned != head_rows) {
    return fail("{}: wanted heads that turn whole to put them in another order, got {} of {}", tensor.name, turned,
                head_rows);
  }
  return RowOrder{head_rows, to_halves};
}

}  // namespace octalane
