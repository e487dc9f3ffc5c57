// MODEL.lanes.json: what the gate found about a model, and which lossy lanes may therefore run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gate/judge.h"
#include "linear/lane_rules.h"

namespace octalane {

struct LaneJudgement {
  StagedType staged;
  std::vector<Comparison> texts;  ///< in the order of Receipt::texts; empty when no tensor can take the lane
  std::vector<KeptStock> stock;
  int64_t served = 0;  ///< tensors that took the lane
  std::string fails;   ///< why_fails of the worst of each figure; empty = passed
  bool passed() const { return !texts.empty() && fails.empty(); }
};

/// "pass", "fail" or "not served".
std::string verdict(const LaneJudgement& lane);

struct LayerScore {
  std::string name;
  int64_t tensors = 0;
  Comparison worst;
};

struct Receipt {
  std::string version, commit, date, command;
  std::string model, fingerprint;
  Thresholds thresholds;
  int64_t window = 0;
  struct TextRead {
    std::string name, hash;
    int64_t tokens = 0, scored = 0;
  };
  std::vector<TextRead> texts;
  std::vector<Comparison> noise_floor;  ///< by text
  std::vector<LaneJudgement> lanes;
  std::optional<LaneJudgement> mixed;
  std::optional<StagedType> layers_lane;
  std::vector<LayerScore> layers;  ///< the most hurtful first
};

/// The lossy lanes that a receipt allows: those that passed, and the mixed one, but for the tensors it keeps stock.
std::vector<LaneGrant> grants_of(const Receipt& receipt);

/// "MODEL.lanes.json", of a folder without its trailing slash.
std::string receipt_path(std::string model);

/// One JSON document; numbers that are not finite are null.
std::string receipt_text(const Receipt& receipt);
/// Appears under its name when it is complete.
Status write_receipt(const std::string& path, const Receipt& receipt);

/// What of a receipt is obeyed.
struct ReceiptRead {
  std::string version, fingerprint;
  std::vector<LaneGrant> grants;
};
/// Whatever is not a receipt's is an error that names the path: nothing in the file is trusted.
Expected<ReceiptRead> read_receipt(const std::string& path);

}  // namespace octalane
