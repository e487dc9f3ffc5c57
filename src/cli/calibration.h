// Second moments of the inputs of a model's products over a text, gathered as far as memory allows at a time.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "additive/second_moments.h"
#include "checkpoint/checkpoint.h"
#include "cli/command.h"

namespace octalane::cli {

struct CalibrationOptions {
  std::string text;       ///< path; "" = none
  int64_t tokens = 8192;  ///< of the text, at most; whole windows of 512
};

class Calibration {
 public:
  /// Reads and tokenizes the text. Errors: no whole window, a model that cannot be run.
  static Expected<Calibration> read(const CommonOptions& common, const CalibrationOptions& options,
                                    const Checkpoint& file);

  /// Names the tokens and the model that runs them.
  const std::string& key() const { return key_; }
  int64_t tokens() const { return static_cast<int64_t>(tokens_.size()); }

  /// The moments of the input of products[0]. When they are not in memory, those that are go, and the model's stock
  /// path runs the text once for products[0] and as many of those behind it as kMomentBytes hold (one at least).
  Expected<const SecondMoments*> moments(const Checkpoint& file, const std::vector<std::string_view>& products);

  static constexpr int64_t kMomentBytes = int64_t{2} << 30;

 private:
  using Held = std::map<std::string, std::shared_ptr<SecondMoments>, std::less<>>;

  Calibration() = default;
  Status gather(const Checkpoint& file, const std::vector<std::string_view>& products);

  CommonOptions common_;
  std::vector<int32_t> tokens_;
  int64_t window_ = 0;
  std::string key_;
  Held held_;  ///< products of one input share an entry
};

}  // namespace octalane::cli
