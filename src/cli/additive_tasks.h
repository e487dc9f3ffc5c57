// Matrices that quantize encodes as additive codebooks: calibration, parts kept for the next run, and how far the
// result is from the weights, beside what rounding to the nearest of two bits would be.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "additive/encode.h"
#include "cli/calibration.h"
#include "cli/kept_parts.h"

namespace octalane::cli {

struct AdditiveOptions {
  CalibrationOptions calibration;
  uint64_t seed = 0;
};

/// One matrix, whole: weights[rows][cols] in the order of the output's rows.
struct AdditiveTask {
  std::string name;  ///< of the tensor in the input
  int64_t rows = 0, cols = 0;
  std::function<void(int64_t row, float* out)> read_row;
};

class AdditiveTasks {
 public:
  /// `names`: all matrices that will be encoded, in order. Parts are kept in `folder`.
  static Expected<AdditiveTasks> create(const CommonOptions& common, const AdditiveOptions& options,
                                        const Checkpoint& file, const Format& format, std::vector<std::string> names,
                                        const std::string& folder, int threads);

  /// Encodes the next matrix, or takes the part kept for it. `progress` gets the share that is done. Fails with
  /// "interrupted" and how to go on after Ctrl-C.
  Expected<KeptPart> encode(const AdditiveTask& task, const std::function<void(double)>& progress);

  bool calibrated() const { return calibration_.has_value(); }
  int64_t calibration_tokens() const { return calibration_ ? calibration_->tokens() : 0; }
  int64_t resumed() const { return resumed_; }
  const KeptParts& parts() const { return parts_; }
  /// What matrices of this many columns are compared with.
  static const Format& rounding_format(int64_t cols);

 private:
  AdditiveTasks(const Checkpoint& file, const Format& format, const std::string& folder)
      : file_(file), format_(format), parts_(folder) {}
  std::string key(const AdditiveTask& task, const std::vector<float>& weights) const;
  Expected<KeptPart> encode_new(const AdditiveTask& task, const std::vector<float>& weights,
                                const std::function<void(double)>& progress);
  tl::unexpected<Error> interrupted_error() const;

  const Checkpoint& file_;
  const Format& format_;
  KeptParts parts_;
  std::vector<std::string> names_;
  uint64_t seed_ = 0;
  int threads_ = 1;
  std::optional<Calibration> calibration_;
  int64_t done_ = 0, resumed_ = 0;
};

}  // namespace octalane::cli
