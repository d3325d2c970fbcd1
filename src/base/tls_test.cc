#include "base/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/test_certificates.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

using ::testing::StartsWith;

TEST(TlsTest, NamesTheFileThatIsWrong) {
  const TestDirectory directory;
  const TestCertificate own = MakeTestCertificate();
  const std::string certificate = directory.Write("own.pem", own.certificate_pem);
  const std::string key = directory.Write("own.key", own.key_pem);
  const std::string other_key = directory.Write("other.key", MakeTestCertificate().key_pem);
  const std::string garbage = directory.Write("garbage.pem", "no certificate\n");
  const std::string none = directory.Path("none.pem");
  const auto expect = [](TlsFiles files, absl::StatusCode code, const std::string& message) {
    files.prefix = "tls_";
    const absl::Status status = NewTlsClient(files, "localhost").status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), StartsWith(message));
  };
  using absl::StatusCode;
  expect({.ca = certificate, .certificate = certificate, .key = key}, StatusCode::kOk, "");
  expect({.ca = none}, StatusCode::kNotFound, "tls_ca = " + none + ": No such file or directory");
  expect({.ca = directory.path()}, StatusCode::kInvalidArgument,
         "tls_ca = " + directory.path() + " is not a regular file");
  expect({.ca = garbage}, StatusCode::kInvalidArgument, "tls_ca = " + garbage + ": ");
  expect({.certificate = garbage, .key = key}, StatusCode::kInvalidArgument,
         "tls_certificate = " + garbage + ": ");
  expect({.certificate = none, .key = key}, StatusCode::kNotFound, "tls_certificate = " + none);
  expect({.certificate = certificate, .key = none}, StatusCode::kNotFound, "tls_key = " + none);
  expect({.certificate = certificate, .key = other_key}, StatusCode::kInvalidArgument,
         "tls_key = " + other_key + ": key values mismatch");
}

}  // namespace
}  // namespace hps
