// Runs the kernel tests and says which instruction sets they reached.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <sstream>
#include <string>

#include "kernels/registry.h"

namespace octalane::test {
void register_contract();
const std::set<std::string>& reached();
}  // namespace octalane::test

namespace {

/// "Covered: scalar avx2 amx (by software); not here: none". Returns how many instruction sets of OCTALANE_REQUIRE_ISA
/// (a list with commas) the contract did not reach.
int report_coverage() {
  const std::set<std::string>& reached = octalane::test::reached();
  std::string covered, absent;
  for (const octalane::IsaTable* isa : octalane::isa_tables()) {
    if (isa->kernels.empty()) continue;  // only probes
    const bool by_software = reached.contains(isa->name) && !isa->unavailable().empty();
    (reached.contains(isa->name) ? covered : absent) +=
        fmt::format(" {}{}", isa->name, by_software ? " (by software)" : "");
  }
  fmt::print("Covered:{}; not here:{}\n", covered, absent.empty() ? " none" : absent);
  int missing = 0;
  const char* required = std::getenv("OCTALANE_REQUIRE_ISA");
  std::istringstream names(required != nullptr ? required : "");
  for (std::string isa; std::getline(names, isa, ',');) {
    if (isa.empty() || reached.contains(isa)) continue;
    fmt::print("OCTALANE_REQUIRE_ISA asks for {}, which was not reached\n", isa);
    ++missing;
  }
  return missing;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  octalane::test::register_contract();
  const int failed = RUN_ALL_TESTS();
  if (testing::GTEST_FLAG(list_tests)) return failed;
  return report_coverage() > 0 ? 1 : failed;
}
