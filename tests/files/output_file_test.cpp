#include "files/output_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "files/files_testing.h"

namespace octalane {
namespace {

using testing::TemporaryFolder;

std::string error_of(const Status& status) { return status ? "no error" : status.error().message; }
Status write(OutputFile& file, std::string_view text) { return file.write(std::as_bytes(std::span(text))); }

TEST(OutputFile, appears_only_when_it_is_committed) {
  const TemporaryFolder folder;
  auto file = OutputFile::create(folder / "out");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(write(*file, "content"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  ASSERT_EQ(error_of(file->commit()), "no error");
  EXPECT_EQ(testing::read_bytes(folder / "out"), "content");
  EXPECT_EQ(folder.files(), 1u);
  EXPECT_EQ(error_of(file->commit()), folder / "out" + ": finished twice");
  EXPECT_EQ(error_of(write(*file, "x")), folder / "out" + ": written after it was finished");
}

TEST(OutputFile, given_up_leaves_the_old_file_and_nothing_else) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "out", "old");
  {
    auto file = OutputFile::create(folder / "out");
    ASSERT_TRUE(file);
    ASSERT_TRUE(write(*file, "half"));
  }
  EXPECT_EQ(testing::read_bytes(folder / "out"), "old");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(OutputFile, two_at_once_do_not_meet) {
  const TemporaryFolder folder;
  auto a = OutputFile::create(folder / "out"), b = OutputFile::create(folder / "out");
  ASSERT_TRUE(a && b);
  ASSERT_TRUE(write(*a, "first") && write(*b, "second"));
  ASSERT_TRUE(b->commit() && a->commit());
  EXPECT_EQ(testing::read_bytes(folder / "out"), "first");
}

TEST(OutputFile, a_link_is_followed) {
  const TemporaryFolder folder;
  testing::write_bytes(folder / "real", "old");
  std::filesystem::create_symlink("real", folder / "link");
  auto file = OutputFile::create(folder / "link");
  ASSERT_TRUE(file && write(*file, "new") && file->commit());
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(testing::read_bytes(folder / "real"), "new");
}

TEST(OutputFile, what_is_no_regular_file_is_not_replaced) {
  const TemporaryFolder folder;
  const auto refusal = [](const std::string& path) {
    const auto file = OutputFile::create(path);
    return file ? "no error" : file.error().message;
  };
  EXPECT_EQ(refusal("/dev/null"), "/dev/null: wanted a regular file to replace, got something else");
  EXPECT_EQ(refusal(folder / ""), folder / "" + ": wanted a regular file to replace, got something else");
  EXPECT_EQ(refusal(folder / "no/such"), folder / "no/such" + ": cannot write: No such file or directory");
}

TEST(OutputFile, a_disk_that_takes_no_more_is_told_and_leaves_nothing) {
  const TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1000, before.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string committed;
  {
    auto file = OutputFile::create(folder / "out");
    ASSERT_TRUE(file);
    // Short enough to sit in the buffer until the file is closed.
    const Status written = write(*file, std::string(2000, 'x'));
    committed = written ? error_of(file->commit()) : written.error().message;
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(committed, folder / "out" + ": cannot write: File too large");
  EXPECT_EQ(folder.files(), 0u);
}

}  // namespace
}  // namespace octalane
