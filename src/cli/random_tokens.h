// Random activations of the benches: what lanes lose depends on how far values lie apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octalane::cli {

/// gaussian: standard normal. heavy: Student's t with 3 degrees of freedom, of which 1 in 470 lies beyond 10. outlier:
/// standard normal, but one channel, `outlier_channel`, is 1000 times as large.
const std::vector<std::string>& token_kinds();

int64_t outlier_channel(int64_t cols);

/// [tokens][cols] of the kind; a seed gives the same ones everywhere. Precondition: a kind of token_kinds().
std::vector<float> random_tokens(const std::string& kind, int64_t tokens, int64_t cols, uint64_t seed);

/// For receipts: "Gaussian weights ..., quantized; ... activations".
std::string describe_input(const std::string& kind);

}  // namespace octalane::cli
