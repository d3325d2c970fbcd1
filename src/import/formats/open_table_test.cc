#include "import/formats/open_table.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "import/test_table_files.h"
#include "testing/unprivileged.h"

namespace hps {
namespace {

class OpenTableTest : public TableFilesTest {
 protected:
  static absl::StatusOr<std::unique_ptr<TableReader>> Open(const ImportRequest& request) {
    return OpenTable(request, request.name, request.from, nullptr);
  }
  static void ExpectError(const ImportRequest& request, absl::StatusCode code,
                          const std::string& text) {
    TableFilesTest::ExpectError(Open(request).status(), code, text);
  }
};

TEST_F(OpenTableTest, DetectsEveryFormat) {
  WriteHugectr("h", 3, 5);
  WriteNpy("n", "<f4", 8);
  WriteSafetensors("s.safetensors");
  const auto dims = [&](const std::string& from, TableFormat format) {
    ImportRequest request = Request(from);
    request.format = format;
    const auto reader = Open(request);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return reader.ok() ? (*reader)->shape().dim : 0;
  };
  EXPECT_EQ(dims("h", TableFormat::kAuto), 5U);
  EXPECT_EQ(dims("h", TableFormat::kHugectr), 5U);
  EXPECT_EQ(dims("n", TableFormat::kAuto), 2U);
  EXPECT_EQ(dims("n", TableFormat::kNpy), 2U);
  EXPECT_EQ(dims("s.safetensors", TableFormat::kAuto), 3U);
  EXPECT_EQ(dims("s.safetensors", TableFormat::kSafetensors), 3U);
}

TEST_F(OpenTableTest, SaysWhatItExpectedWhereThereIsNoTable) {
  ExpectError(Request("missing"), absl::StatusCode::kNotFound, directory_.Path("missing"));
  std::filesystem::create_directory(directory_.Path("empty"));
  ExpectError(Request("empty"), kInvalid, "found neither");
  WriteHugectr("both", 1, 1);
  WriteNpy("both", "<f4", 8);
  ExpectError(Request("both"), kInvalid, "found both");
  directory_.Write("weights.dat", "x");
  ExpectError(Request("weights.dat"), kInvalid, "--format safetensors");
  WriteHugectr("h", 1, 1);
  ImportRequest request = Request("h");
  request.format = TableFormat::kNpy;
  ExpectError(request, absl::StatusCode::kNotFound, "keys.npy");
  request.format = TableFormat::kSafetensors;
  ExpectError(request, kInvalid, "found a directory");
  request = Request("h");
  request.tensor = "rows";
  ExpectError(request, kInvalid, "for safetensors files only");
}

// Catches: an error that claims that the directory holds neither format.
TEST_F(OpenTableTest, AnUnreadableDirectoryIsPermissionDenied) {
  using std::filesystem::perms;
  WriteHugectr("h", 1, 1);
  std::filesystem::permissions(directory_.Path("h"), perms::none);
  const ImportRequest request = {.name = "m/t", .from = "h"};
  {
    // Uses a relative path: the user nobody may not have access to the directories above.
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::permissions(directory_.Path(), perms::all);
    std::filesystem::current_path(directory_.Path());
    {
      const Unprivileged nobody;
      ExpectError(request, absl::StatusCode::kPermissionDenied,
                  "can't read the directory h: Permission denied");
    }
    std::filesystem::current_path(before);
  }
  std::filesystem::permissions(directory_.Path("h"), perms::all);
  EXPECT_TRUE(Open(Request("h")).ok());
}

TEST_F(OpenTableTest, ALinkToItselfIsNoTable) {
  std::filesystem::create_symlink("loop", directory_.Path("loop"));
  ExpectError(Request("loop"), kInvalid, "Too many levels of symbolic links");
}

}  // namespace
}  // namespace hps
