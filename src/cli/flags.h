// The flags of one subcommand. CLI11 parses them, and is seen by flags.cpp and main.cpp alone: it takes seconds to
// compile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace octalane::cli {

struct CommonOptions {
  int threads = 0;  ///< 0 = not given
  std::string device = "cpu";
  std::string isa;
  std::string lane = "auto";
  std::string lanes;             ///< a plan file; "" = none
  std::string receipt = "none";  ///< none, auto or a file; auto for commands that have the flag
  std::string rates = "auto";
  bool json = false;
  bool wrong_results = false;  ///< no flag: bench gemm alone accepts the kernels of an ablation build
};

enum class Need { optional, required };

/// Declares flags on variables that must live until parsing is done. Names are "-m,--model", or "MODEL" for one without
/// a dash. What the variable holds is the default, and shown in --help when it is a value that could have been given. A
/// value that is not allowed is a usage error that names the flag.
class Flags {
 public:
  /// A new subcommand of `parent`.
  Flags(CLI::App& parent, const std::string& name, const std::string& description);

  CLI::App* app() const { return app_; }
  /// What --help says below the flags.
  void footer(const std::string& text);

  void text(const std::string& names, std::string& value, const std::string& help, Need need = Need::optional);
  void choice(const std::string& names, std::string& value, const std::vector<std::string>& allowed,
              const std::string& help, Need need = Need::optional);
  void number(const std::string& names, int& value, int least, int most, const std::string& help);
  void number(const std::string& names, int64_t& value, int64_t least, int64_t most, const std::string& help,
              Need need = Need::optional);
  void number(const std::string& names, float& value, float least, float most, const std::string& help);
  void number(const std::string& names, double& value, double least, double most, const std::string& help);
  void seed(uint64_t& value, const std::string& help);
  void toggle(const std::string& names, bool& value, const std::string& help);
  /// Comma-separated: `--tokens 1,16,512`, whole numbers from 1.
  void numbers(const std::string& names, std::vector<int64_t>& values, const std::string& help);
  /// Comma-separated, or the flag repeated.
  void choices(const std::string& names, std::vector<std::string>& values, const std::vector<std::string>& allowed,
               const std::string& help, Need need = Need::optional);
  /// May be repeated, one text each time.
  void texts(const std::string& names, std::vector<std::string>& values, const std::string& help,
             Need need = Need::optional);
  /// May be repeated, one pattern each time.
  void patterns(const std::string& names, std::vector<std::string>& values, const std::string& help);
  /// Exactly one of two texts.
  void either(const std::string& names, std::string& value, const std::string& help, const std::string& other_names,
              std::string& other_value, const std::string& other_help);
  /// --threads, --device, --isa, --json.
  void machine(CommonOptions& options, const std::vector<std::string>& devices = {"cpu"});
  /// Those and --lane.
  void common(CommonOptions& options, const std::vector<std::string>& devices = {"cpu"});
  /// --lanes, of commands that bind the tensors of a file, and --receipt, of those that run a model.
  void lane_plan(CommonOptions& options);
  void receipt(CommonOptions& options);
  /// --rates, of commands that plan products; OCTALANE_RATES in the environment is its default.
  void rates(CommonOptions& options);

 private:
  CLI::App* app_;
};

/// What every -m and -w take.
inline constexpr const char* kModelHelp =
    "A GGUF file, a .safetensors file, or a model folder (config.json, safetensors)";

/// Names that choice() takes: lanes, formats that this build can make from fp32.
std::vector<std::string> lane_names();
std::vector<std::string> encodable_formats();
/// Those, and additive codebooks, which can be made up without an encoder.
std::vector<std::string> random_formats();

}  // namespace octalane::cli
