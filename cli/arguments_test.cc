#include "cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace hps::cli {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<CommandLine> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "hps");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

void ExpectUsageError(const std::vector<const char*>& arguments, const std::string& part) {
  const absl::Status status = Parse(arguments).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << part;
  EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
}

TEST(ArgumentsTest, Import) {
  const auto line =
      Parse({"import",   "--store",  "s",     "--table",   "m/t",     "--from",  "p",
             "--format", "npy",      "--dim", "4",         "--dtype", "float16", "--default",
             "-1.5",     "--memory", "64MiB", "--threads", "3",       "--json"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_TRUE(line->json);
  const auto& arguments = std::get<ImportArguments>(line->command);
  EXPECT_EQ(arguments.store.store, "s");
  EXPECT_EQ(arguments.request.name, "m/t");
  EXPECT_EQ(arguments.request.from, "p");
  EXPECT_EQ(arguments.request.format, TableFormat::kNpy);
  EXPECT_EQ(arguments.dims, std::vector<uint64_t>{4});
  EXPECT_EQ(arguments.request.dtype, Dtype::kFloat16);
  EXPECT_EQ(arguments.default_values, std::vector<double>{-1.5});
  EXPECT_EQ(arguments.request.memory_bytes_max, uint64_t{64} << 20);
  EXPECT_EQ(arguments.request.threads, 3u);
}

TEST(ArgumentsTest, ImportOfAModel) {
  const auto line =
      Parse({"import", "--config", "c", "--model", "m", "--from", "p", "--tensor", "w",
             "--default-file", "d.npy", "--stream-from", "latest", "--import-id", "v1.2_a-B"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_FALSE(line->json);
  const auto& arguments = std::get<ImportArguments>(line->command);
  EXPECT_EQ(arguments.store.config, "c");
  EXPECT_EQ(arguments.request.name, "m");
  EXPECT_EQ(arguments.request.tensor, "w");
  EXPECT_EQ(arguments.request.default_file, "d.npy");
  EXPECT_EQ(arguments.request.update_start, (UpdateStart{.kind = UpdateStart::Kind::kEnd}));
  EXPECT_EQ(arguments.request.import_id, "v1.2_a-B");
}

TEST(ArgumentsTest, ImportOfTheTablesOfAModel) {
  const auto line = Parse({"import", "--store", "s", "--model", "m", "--table-from", "user=a=b",
                           "--table-from", "item=/c,d", "--dim", "4,16", "--default", "-0.5,1"});
  ASSERT_TRUE(line.ok()) << line.status();
  const auto& arguments = std::get<ImportArguments>(line->command);
  ASSERT_EQ(arguments.tables.size(), 2U);
  EXPECT_EQ(arguments.tables[0].name, "user");
  EXPECT_EQ(arguments.tables[0].from, "a=b");
  EXPECT_EQ(arguments.tables[1].name, "item");
  EXPECT_EQ(arguments.tables[1].from, "/c,d");
  EXPECT_EQ(arguments.dims, (std::vector<uint64_t>{4, 16}));
  EXPECT_EQ(arguments.default_values, (std::vector<double>{-0.5, 1}));
  const std::vector<const char*> model = {"import", "--store", "s", "--model", "m"};
  const auto expect_usage_error = [&](std::vector<const char*> more, const std::string& part) {
    more.insert(more.begin(), model.begin(), model.end());
    ExpectUsageError(more, part);
  };
  expect_usage_error({}, "--from PATH, or --table-from NAME=PATH");
  for (const char* wrong : {"user", "user=", "=path", "a/b=path"})
    expect_usage_error({"--table-from", wrong}, "is not a table's name and path, NAME=PATH");
  expect_usage_error({"--table-from", "user=a", "--from", "p"}, "--from");
  expect_usage_error({"--table-from", "user=a", "--dim", "4,4"}, "found 2 for 1");
  expect_usage_error({"--from", "p", "--default", "1,2"}, "found 2 for 0");
  expect_usage_error({"--from", "p", "--default", "1,"}, "'' is not a number");
}

TEST(ArgumentsTest, KeysMayBeNegative) {
  const auto line = Parse({"lookup", "--store", "s", "--table", "m/t", "--keys", "-1,2,-3"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(std::get<LookupArguments>(line->command).keys, (std::vector<Key>{-1, 2, -3}));
}

TEST(ArgumentsTest, TheOtherCommands) {
  EXPECT_TRUE(
      std::get<VerifyArguments>(Parse({"verify", "--store", "s", "--repair"})->command).repair);
  EXPECT_EQ(std::get<InspectArguments>(Parse({"inspect", "--store", "s"})->command).store.store,
            "s");
  EXPECT_EQ(
      std::get<DropArguments>(Parse({"drop", "--store", "s", "--table", "m/t"})->command).name,
      "m/t");
  EXPECT_EQ(std::get<DropArguments>(Parse({"drop", "--store", "s", "--model", "m"})->command).name,
            "m");
  const auto line =
      Parse({"export", "--store", "s", "--table", "m/t", "--to", "d", "--format", "npy"});
  EXPECT_EQ(std::get<ExportArguments>(line->command).request.format, TableFormat::kNpy);
  const auto generate = Parse({"generate", "--out", "o", "--tables", "26", "--rows", "1000",
                               "--dim", "16", "--alpha", "1.1", "--seed", "7"});
  ASSERT_TRUE(generate.ok()) << generate.status();
  EXPECT_EQ(std::get<GenerateArguments>(generate->command).request.tables, 26u);
  EXPECT_EQ(std::get<GenerateArguments>(generate->command).request.alpha, 1.1);
}

// hps-bench parses them, so that `hps` knows no scenario.
TEST(ArgumentsTest, TheWordsOfBenchAreHandedOn) {
  const auto bench = Parse({"--json", "bench", "nosuch", "--out=", "--help"});
  ASSERT_TRUE(bench.ok()) << bench.status();
  EXPECT_TRUE(bench->json);
  EXPECT_EQ(bench->text, "");
  EXPECT_EQ(std::get<BenchArguments>(bench->command).words,
            (std::vector<std::string>{"--json", "nosuch", "--out=", "--help"}));
  EXPECT_TRUE(std::get<BenchArguments>(Parse({"bench"})->command).words.empty());
  EXPECT_FALSE(Parse({"bench"})->json);
  EXPECT_THAT(Parse({"--help"})->text, HasSubstr("bench  "));
  EXPECT_THAT(Parse({"--version", "bench", "l2"})->text, HasSubstr("hps "));
}

TEST(ArgumentsTest, HelpAtEveryLevelHasAnExample) {
  for (const char* command :
       {"import", "lookup", "inspect", "verify", "export", "drop", "generate"}) {
    const auto line = Parse({command, "--help"});
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_THAT(line->text, HasSubstr("Example:\n  hps " + std::string(command)));
  }
  EXPECT_THAT(Parse({"--help"})->text, HasSubstr("Example:\n"));
  EXPECT_THAT(Parse({"--version"})->text, HasSubstr("hps "));
}

// Catches: help for a command that there is not, with exit status 0.
TEST(ArgumentsTest, HelpOfAnUnknownCommandIsWrongUsage) {
  ExpectUsageError({"nosuch", "--help"}, "'nosuch' is not a command; commands are: import");
  ExpectUsageError(
      {"--help", "lokup"},
      "serve apply refresh snapshot parked top convert-config; did you mean 'lookup'?");
  ExpectUsageError({"--json", "--nosuch", "--version"}, "'--nosuch' is not an option of hps");
  ExpectUsageError({"nosuch", "import", "--help"}, "'nosuch' is not a command");
  EXPECT_TRUE(Parse({"--json", "--help"}).ok());
  EXPECT_TRUE(Parse({"--json", "import", "-h"}).ok());
}

TEST(ArgumentsTest, WrongUsageNamesTheNearestOption) {
  ExpectUsageError({"lookup", "--store", "s", "--table", "m/t", "--key", "1"},
                   "lookup: '--key' is not an option of this command; did you mean '--keys'?");
  ExpectUsageError({"verify", "all", "--store", "s"}, "verify: 'all' is not expected");
}

TEST(ArgumentsTest, WrongUsageNamesCommandAndOption) {
  ExpectUsageError({}, "a command is required; commands are: import lookup");
  ExpectUsageError({"--json"}, "a command is required; commands are: import lookup");
  ExpectUsageError({"imprt", "--store", "s"},
                   "'imprt' is not a command; commands are: import lookup");
  ExpectUsageError({"--stor", "s"}, "'--stor' is not an option of hps; commands are: import");
  ExpectUsageError({"import", "--table", "m/t", "--from", "p"}, "--store DIR or --config FILE");
  ExpectUsageError({"import", "--store", "s", "--from", "p"}, "--table MODEL/TABLE or --model");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t"}, "--from");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--model", "m", "--from", "p"},
                   "excludes");
  ExpectUsageError({"import", "--store", "s", "--config", "c", "--table", "m/t", "--from", "p"},
                   "excludes");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--format", "x"},
                   "'x' is not one of auto|hugectr|hugectr-bin|hugectr-redis|hugectr-rocksdb|npy|"
                   "safetensors");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--dtype", "int8"},
                   "'int8'");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--dim", "-1"},
                   "--dim");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--default", "x"},
                   "'x' is not a number");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--memory", "1GB"},
                   "'1GB'");
  ExpectUsageError({"lookup", "--store", "s", "--table", "m/t"}, "--keys 1,2,3 or --keys-file");
  ExpectUsageError({"lookup", "--store", "s", "--table", "m/t", "--keys", "1,x"},
                   "'x' is not a key");
  ExpectUsageError({"lookup", "--store", "s", "--table", "m/t", "--keys", "1", "--device", "-2"},
                   "--device");
  ExpectUsageError({"verify", "--store", "s", "--fast"}, "--fast");
  ExpectUsageError({"export", "--store", "s", "--table", "m/t", "--to", "d"}, "--format");
  ExpectUsageError({"drop", "--store", "s"}, "--table MODEL/TABLE or --model");
  ExpectUsageError({"generate", "--out", "o"}, "required");
}

// Catches: names that only the library refuses, with exit status 1 in place of 2.
TEST(ArgumentsTest, NamesAreCheckedBeforeAnythingIsTouched) {
  for (const std::vector<const char*>& command :
       {std::vector{"import", "--store", "s", "--from", "p"},
        std::vector{"lookup", "--store", "s", "--keys", "1"},
        std::vector{"export", "--store", "s", "--to", "d", "--format", "npy"},
        std::vector{"drop", "--store", "s"}}) {
    for (const char* table : {"x", "", "m/", "/t", "m/a b", "m/a/b", "../x"}) {
      std::vector<const char*> arguments = command;
      arguments.insert(arguments.end(), {"--table", table});
      ExpectUsageError(arguments, "--table: table name");
    }
  }
  ExpectUsageError({"import", "--store", "s", "--model", "a/b", "--from", "p"},
                   "--model: 'a/b': a model's name holds no '/'");
  ExpectUsageError({"import", "--store", "s", "--model", "a b", "--from", "p"},
                   "--model: 'a b' is not a model's name: 1 to 120 characters a-z A-Z 0-9 _ -");
}

// Catches: the next option taken for the value of "--option=".
TEST(ArgumentsTest, NothingBehindTheEqualSignIsAnEmptyValue) {
  const auto none = Parse({"lookup", "--store", "s", "--table", "m/t", "--keys=", "--json"});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_TRUE(none->json);
  EXPECT_EQ(std::get<LookupArguments>(none->command).keys, std::vector<Key>());
  EXPECT_EQ(
      std::get<LookupArguments>(Parse({"lookup", "--store=s", "--table=m/t", "--keys=-1"})->command)
          .keys,
      std::vector<Key>{-1});
  const auto serve = Parse({"serve", "--store", "s", "--http=", "--grpc", "h:1"});
  ASSERT_TRUE(serve.ok()) << serve.status();
  EXPECT_EQ(std::get<ServeArguments>(serve->command).http, "");
  EXPECT_EQ(std::get<ServeArguments>(serve->command).grpc, "h:1");
  const std::vector<std::vector<const char*>> commands = {
      {"lookup", "--table", "m/t", "--keys", "1"},
      {"import", "--table", "m/t", "--from", "p"},
      {"export", "--table", "m/t", "--to", "d", "--format", "npy"},
      {"generate", "--out", "o", "--tables", "1", "--rows", "5", "--dim", "4"},
      {"top", "--server", "http://h:1"}};
  const std::vector<std::vector<const char*>> options = {
      {"--store=", "--out=", "--device=", "--keys-file="},
      {"--store=", "--dim=", "--memory=", "--threads=", "--default=", "--default-file=",
       "--tensor=", "--stream-from=", "--import-id=", "--format=", "--dtype="},
      {"--store="},
      {"--alpha=", "--seed=", "--requests=", "--format="},
      {"--interval=", "--count=", "--token-file=", "--tls-ca="}};
  for (size_t i = 0; i < commands.size(); ++i) {
    for (const char* option : options[i]) {
      std::vector<const char*> arguments = commands[i];
      arguments.insert(arguments.end(), {option, "--json"});
      ExpectUsageError(arguments, "''");
    }
  }
  ExpectUsageError({"lookup", "--store", "s", "--table=", "--keys", "1"}, "--table: table name ''");
}

// Catches: values that only the library refuses, with exit status 1 in place of 2.
TEST(ArgumentsTest, ValuesOutOfRangeAreWrongUsage) {
  const std::vector<const char*> generate = {"generate", "--out", "o", "--rows", "2000"};
  const auto with = [&](std::vector<const char*> more) {
    more.insert(more.begin(), generate.begin(), generate.end());
    return more;
  };
  ExpectUsageError(with({"--dim", "4", "--tables", "1025"}), "generate: tables is 1025");
  ExpectUsageError(with({"--dim", "4", "--tables", "4294967296"}), "--tables");
  ExpectUsageError(with({"--dim", "4097", "--tables", "1"}), "dim is 4097, expected 1 to 4096");
  ExpectUsageError(with({"--dim", "4", "--tables", "1", "--alpha", "-1"}), "alpha is -1");
  ExpectUsageError(with({"--dim", "4", "--tables", "1", "--alpha", "nan"}), "alpha is nan");
  ExpectUsageError(with({"--dim", "4", "--tables", "1", "--requests", "4294967297"}),
                   "requests is 4294967297");
  ExpectUsageError({"generate", "--out", "o", "--rows", "5", "--dim", "4", "--tables", "6"},
                   "rows is 5, expected at least one for each of the 6 tables");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--dim", "16385"},
                   "'16385' is not a whole number from 1 to 16384");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--dim", "0"},
                   "'0' is not a whole number from 1 to 16384");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--threads", "0"},
                   "--threads");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--memory", "1KiB"},
                   "--memory: '1KiB' is less than sorting needs: 256KiB");
  ExpectUsageError(
      {"import", "--store", "s", "--table", "m/t", "--from", "p", "--default", "1e400"},
      "--default");
  ExpectUsageError({"lookup", "--store", "s", "--table", "m/t", "--keys", "18446744073709551616"},
                   "--keys");
}

TEST(ArgumentsTest, AnEmptyPathIsNone) {
  constexpr const char* kError = "expected a path, found ''";
  ExpectUsageError({"inspect", "--store", ""}, kError);
  ExpectUsageError({"inspect", "--config", ""}, kError);
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", ""}, kError);
  ExpectUsageError(
      {"import", "--store", "s", "--table", "m/t", "--from", "p", "--default-file", ""}, kError);
  ExpectUsageError({"lookup", "--store", "s", "--table", "m/t", "--keys", "1", "--out", ""},
                   kError);
  ExpectUsageError({"lookup", "--store", "s", "--table", "m/t", "--keys-file", ""}, kError);
  ExpectUsageError({"export", "--store", "s", "--table", "m/t", "--format", "npy", "--to", ""},
                   kError);
  ExpectUsageError({"generate", "--tables", "1", "--rows", "1", "--dim", "1", "--out", ""}, kError);
}

// Catches: -5 rows taken for 2^64 - 5, and a dim of 010 for 8.
TEST(ArgumentsTest, NumbersAreDecimalAndNeverWrapAround) {
  const std::vector<const char*> generate = {"generate", "--out", "o"};
  const auto with = [&](const char* tables, const char* rows, const char* dim) {
    std::vector<const char*> arguments = generate;
    arguments.insert(arguments.end(), {"--tables", tables, "--rows", rows, "--dim", dim});
    return arguments;
  };
  ExpectUsageError(with("1", "-5", "4"), "--rows: '-5' is not a whole number from 1 to 184467");
  ExpectUsageError(with("-1", "5", "4"), "--tables: '-1'");
  ExpectUsageError(with("4294967296", "5", "4"), "--tables: '4294967296'");
  ExpectUsageError(with("1", "5", "0x10"), "--dim: '0x10'");
  ExpectUsageError(with("1", "5", "0"), "--dim: '0'");
  const auto line = Parse(with("1", "18446744073709551615", "010"));
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(std::get<GenerateArguments>(line->command).request.dim, 10u);
  EXPECT_EQ(std::get<GenerateArguments>(line->command).request.rows, UINT64_MAX);
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--dim", "1e3"},
                   "--dim: '1e3'");
  ExpectUsageError({"import", "--store", "s", "--table", "m/t", "--from", "p", "--threads", "-1"},
                   "--threads: '-1'");
  ExpectUsageError({"lookup", "--store", "s", "--table", "m/t", "--keys", "1", "--device", "01x"},
                   "--device: '01x' is not a device");
  ExpectUsageError(
      {"import", "--store", "s", "--table", "m/t", "--from", "p", "--dim", "4", "--dim", "5"},
      "--dim");
}

}  // namespace
}  // namespace hps::cli
