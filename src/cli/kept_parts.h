// Finished matrices beside an output that is not finished yet, so that an interrupted run can go on where it was.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/status.h"
#include "formats/additive.h"

namespace octalane::cli {

/// A matrix and the figures that were measured when it was made.
struct KeptPart {
  AdditiveMatrix matrix;
  double rel_error = 0, weighted_error = 0, rtn_error = 0, rtn_weighted_error = 0;
};

/// A folder of files, one a matrix, each under a key that stands for everything that decides its bytes.
class KeptParts {
 public:
  explicit KeptParts(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  /// The part of this key; none when there is no such file, or it is not whole, or of other sizes.
  std::optional<KeptPart> find(const std::string& key, const AdditiveShape& shape, int64_t rows, int64_t cols) const;
  /// Makes the folder when it is missing.
  Status keep(const std::string& key, const KeptPart& part) const;
  /// Deletes the parts, also those of other keys, and the folder when nothing else is in it.
  void remove() const;

 private:
  std::string path(const std::string& key) const { return folder_ + "/" + key + ".part"; }
  std::string folder_;
};

}  // namespace octalane::cli
