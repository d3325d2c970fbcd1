#include "server/http/route.h"

#include <gtest/gtest.h>

#include "base/public_message.h"
#include "server/http/http_error.h"

namespace hps::server {
namespace {

TEST(RouteTest, FindsWhatThereIs) {
  EXPECT_EQ(FindRoute("/v2").kind, RouteKind::kServerMetadata);
  EXPECT_EQ(FindRoute("/v2/").kind, RouteKind::kServerMetadata);
  EXPECT_EQ(FindRoute("/v2/health/live").kind, RouteKind::kLive);
  EXPECT_EQ(FindRoute("/v2/health/ready").kind, RouteKind::kReady);
  EXPECT_EQ(FindRoute("/v2/models/stats").kind, RouteKind::kServerStatistics);
  EXPECT_EQ(FindRoute("/v2/repository/index").kind, RouteKind::kIndex);
  EXPECT_EQ(FindRoute("/v2/repository/models/m/load").kind, RouteKind::kLoad);
  EXPECT_EQ(FindRoute("/v2/repository/models/m/unload").model, "m");
  EXPECT_EQ(FindRoute("/v2/repository/models/m/refresh").kind, RouteKind::kRefresh);
  EXPECT_EQ(FindRoute("/v2/hps/snapshot").kind, RouteKind::kSnapshot);
  EXPECT_EQ(FindRoute("/v2/logging").kind, RouteKind::kLogging);
  EXPECT_EQ(FindRoute("/v2/trace/setting").kind, RouteKind::kTrace);
  EXPECT_EQ(FindRoute("/v2/models/m/trace/setting").kind, RouteKind::kTrace);
  EXPECT_EQ(FindRoute("/v2/systemsharedmemory/region/r/register").kind, RouteKind::kSharedMemory);
  EXPECT_EQ(FindRoute("/v2/cudasharedmemory/status").kind, RouteKind::kSharedMemory);
  EXPECT_EQ(FindRoute("/").kind, RouteKind::kPage);
  EXPECT_EQ(FindRoute("/metrics").path, "/metrics");
  EXPECT_EQ(FindRoute("/v2x").kind, RouteKind::kPage);
}

TEST(RouteTest, FindsModelsAndVersions) {
  const Route plain = FindRoute("/v2/models/m/infer");
  EXPECT_EQ(plain.kind, RouteKind::kInfer);
  EXPECT_EQ(plain.model, "m");
  EXPECT_EQ(plain.version, "");
  const Route versioned = FindRoute("/v2/models/m/versions/12/infer");
  EXPECT_EQ(versioned.kind, RouteKind::kInfer);
  EXPECT_EQ(versioned.version, "12");
  EXPECT_EQ(FindRoute("/v2/models/m").kind, RouteKind::kModelMetadata);
  EXPECT_EQ(FindRoute("/v2/models/m/versions/1").kind, RouteKind::kModelMetadata);
  EXPECT_EQ(FindRoute("/v2/models/m/ready").kind, RouteKind::kModelReady);
  EXPECT_EQ(FindRoute("/v2/models/m/config").kind, RouteKind::kModelConfig);
  EXPECT_EQ(FindRoute("/v2/models/m/versions/1/stats").kind, RouteKind::kModelStatistics);
}

TEST(RouteTest, FindsTheRowsOfATable) {
  const Route rows = FindRoute("/v2/hps/tables/m/t/rows");
  EXPECT_EQ(rows.kind, RouteKind::kUpdateRows);
  EXPECT_EQ(rows.model, "m");
  EXPECT_EQ(rows.table, "t");
  EXPECT_TRUE(rows.changes_rows());
  EXPECT_FALSE(rows.needs_no_token());
  EXPECT_EQ(AllowedMethods(rows), "POST");
  for (const char* path : {"/v2/hps/tables/m/t", "/v2/hps/tables/m//rows", "/v2/hps/tables//t/rows",
                           "/v2/hps/tables/m/rows", "/v2/hps/tables/m/t/rows/x"}) {
    EXPECT_EQ(FindRoute(path).kind, RouteKind::kUnknown) << path;
  }
}

TEST(RouteTest, KnowsNothingElse) {
  for (const char* path :
       {"", "*", "v2", "/v2/x", "/v2/models", "/v2/models/", "/v2/models//infer",
        "/v2/models/m/versions//infer", "/v2/models/m/infer/x", "/v2/repository/models/m",
        "/v2/repository/models//load", "/v2/repository", "/v2//"}) {
    EXPECT_EQ(FindRoute(path).kind, RouteKind::kUnknown) << path;
  }
}

TEST(RouteTest, KnowsTheMethods) {
  EXPECT_TRUE(Allows(FindRoute("/v2/models/m/infer"), Method::kPost));
  EXPECT_FALSE(Allows(FindRoute("/v2/models/m/infer"), Method::kGet));
  EXPECT_TRUE(Allows(FindRoute("/v2"), Method::kHead));
  EXPECT_FALSE(Allows(FindRoute("/"), Method::kPost));
  EXPECT_TRUE(Allows(FindRoute("/v2/logging"), Method::kPost));
  EXPECT_EQ(AllowedMethods(FindRoute("/v2")), "GET, HEAD");
  EXPECT_EQ(AllowedMethods(FindRoute("/v2/repository/index")), "POST");
}

TEST(HttpErrorTest, MapsEveryCode) {
  constexpr std::string_view kUnknownPhrase = "<unknown-status>";
  using enum absl::StatusCode;
  const std::pair<absl::StatusCode, int> expected[] = {{kOk, 200},
                                                       {kInvalidArgument, 400},
                                                       {kOutOfRange, 400},
                                                       {kUnauthenticated, 401},
                                                       {kPermissionDenied, 403},
                                                       {kNotFound, 404},
                                                       {kAlreadyExists, 409},
                                                       {kAborted, 409},
                                                       {kFailedPrecondition, 409},
                                                       {kResourceExhausted, 429},
                                                       {kCancelled, 499},
                                                       {kUnknown, 500},
                                                       {kInternal, 500},
                                                       {kDataLoss, 500},
                                                       {kUnimplemented, 501},
                                                       {kUnavailable, 503},
                                                       {kDeadlineExceeded, 504}};
  for (const auto& [code, http] : expected) {
    EXPECT_EQ(HttpCodeOf(absl::Status(code, "")), http);
    EXPECT_NE(ReasonPhrase(http), kUnknownPhrase) << http;
  }
  EXPECT_EQ(HttpCodeOf(DiskFull(absl::ResourceExhaustedError(""))), 507);
  for (const int code : {405, 408, 413, 415, 417, 431, 505, 507})
    EXPECT_NE(ReasonPhrase(code), kUnknownPhrase);
  EXPECT_EQ(ReasonPhrase(299), kUnknownPhrase);
}

}  // namespace
}  // namespace hps::server
