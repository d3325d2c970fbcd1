#include "server/http/api.h"

#include "server/http/test_http_world.h"

namespace hps::server {
namespace {

class ApiTest : public HttpWorld {};

TEST_F(ApiTest, TellsItsHealth) {
  const auto client = Connect();
  HttpReply reply = client->Ask(Get("/v2/health/live"));
  EXPECT_EQ(reply.code, 200);
  EXPECT_EQ(reply.body, R"({"live":true})");
  reply = client->Ask(Get("/v2/health/ready"));
  EXPECT_EQ(reply.code, 200);
  EXPECT_EQ(reply.body, R"({"ready":true})");
  EXPECT_EQ(client->Ask(Get("/v2/models/emb/ready")).body, R"({"name":"emb","ready":true})");
  repository_.ready = false;
  reply = client->Ask(Get("/v2/health/ready"));
  EXPECT_EQ(reply.code, 503);
  EXPECT_EQ(reply.body, R"({"error":"the server is not ready"})");
  EXPECT_EQ(client->Ask(Get("/v2/health/live")).code, 200);
  EXPECT_EQ(client->Ask(Get("/v2/models/emb/ready")).code, 200);
  EXPECT_EQ(client->Ask(Get("/v2/models/emb/versions/1/ready")).code, 200);
  EXPECT_EQ(client->Ask(Get("/v2/models/emb/versions/2/ready")).code, 404);
  EXPECT_EQ(client->Ask(Get("/v2/models/x/ready")).code, 404);
}

TEST_F(ApiTest, DescribesServerAndModel) {
  const auto client = Connect();
  const std::string server = client->Ask(Get("/v2")).body;
  EXPECT_TRUE(server.starts_with(R"({"name":"hps","version":")")) << server;
  EXPECT_NE(server.find("\"binary_tensor_data\""), std::string::npos);
  EXPECT_EQ(client->Ask(Get("/v2/models/emb")).body,
            R"({"name":"emb","versions":["1"],"platform":"hps",)"
            R"("inputs":[{"name":"KEYS","datatype":"INT64","shape":[-1]},)"
            R"({"name":"NUMKEYS","datatype":"INT32","shape":[1,1]}],)"
            R"("outputs":[{"name":"ROWS","datatype":"FP32","shape":[-1,4]}]})");
  const std::string config = client->Ask(Get("/v2/models/emb/config")).body;
  EXPECT_NE(config.find(R"("max_batch_size":0)"), std::string::npos);
  EXPECT_NE(config.find(R"("data_type":"TYPE_INT64")"), std::string::npos);
  EXPECT_EQ(client->Ask(Get("/v2/models/none/config")).body,
            R"({"error":"there is no such model"})");
}

TEST_F(ApiTest, GivesStatistics) {
  const auto client = Connect();
  for (const char* path :
       {"/v2/models/stats", "/v2/models/emb/stats", "/v2/models/emb/versions/1/stats"}) {
    const std::string body = client->Ask(Get(path)).body;
    EXPECT_TRUE(body.starts_with(R"({"model_stats":[{"name":"emb","version":"1",)")) << body;
    EXPECT_NE(body.find(R"("inference_count":7,"execution_count":0)"), std::string::npos);
    EXPECT_NE(body.find(R"("fail":{"count":2,"ns":3000})"), std::string::npos);
    EXPECT_NE(body.find(R"("batch_stats":[{"batch_size":1,"compute_input":{"count":5,"ns":0},)"
                        R"("compute_infer":{"count":5,"ns":700})"),
              std::string::npos);
  }
  EXPECT_EQ(client->Ask(Get("/v2/models/x/stats")).code, 404);
}

TEST_F(ApiTest, ListsTheRepository) {
  const auto client = Connect();
  EXPECT_EQ(client->Ask(Post("/v2/repository/index", "")).body,
            R"([{"name":"emb","version":"1","state":"READY"},)"
            R"({"name":"off","state":"UNAVAILABLE","reason":"unloaded"}])");
  EXPECT_EQ(client->Ask(Post("/v2/repository/index", R"({"ready":true})")).body,
            R"([{"name":"emb","version":"1","state":"READY"}])");
  EXPECT_EQ(client->Ask(Post("/v2/repository/index", R"({"ready":1})")).code, 400);
  EXPECT_EQ(client->Ask(Post("/v2/repository/index", "[")).code, 400);
}

TEST_F(ApiTest, ShowsPages) {
  const auto client = Connect();
  HttpReply reply = client->Ask(Get("/metrics"));
  EXPECT_EQ(reply.body, "up 1\n");
  EXPECT_EQ(reply.fields.at("content-type"), "text/plain");
  EXPECT_EQ(client->Ask(Get("/")).body, std::string(5000, 'x'));
  EXPECT_EQ(client->Ask(Get("/api/echo?a=%20b&c")).body, "a=%20b&c");
  EXPECT_EQ(client->Ask(Get("/nothing")).code, 404);
  // HEAD: as GET, without the body, which nobody packs; the connection goes on.
  client->Send("HEAD / HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n");
  reply = client->Read(/*has_body=*/false);
  EXPECT_EQ(reply.code, 200);
  EXPECT_EQ(reply.fields.at("content-length"), "5000");
  EXPECT_EQ(client->Ask(Get("/metrics")).body, "up 1\n");
}

TEST_F(ApiTest, SaysWhoMayKeepAndShowAnAnswer) {
  const auto client = Connect();
  for (const std::string& request : {Get("/v2"), Get("/api/echo"), Get("/v2/models/none"),
                                     Get("/x"), BinaryInfer({1}), Get("/v2/health/live")}) {
    const HttpReply reply = client->Ask(request);
    EXPECT_EQ(reply.fields.at("cache-control"), "no-store") << request;
    EXPECT_EQ(reply.fields.at("vary"), "Accept-Encoding") << request;
    EXPECT_TRUE(reply.fields.contains("date")) << request;
  }
  const HttpReply page = client->Ask(Get("/"));
  EXPECT_EQ(page.fields.at("x-frame-options"), "DENY");
  EXPECT_EQ(page.fields.at("x-content-type-options"), "nosniff");
  const std::string& policy = page.fields.at("content-security-policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'self';")) << policy;
  EXPECT_TRUE(policy.ends_with("frame-ancestors 'none'")) << policy;
}

TEST_F(ApiTest, SaysWhatItDoesNotHave) {
  const auto client = Connect();
  for (const char* path : {"/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status",
                           "/v2/trace/setting", "/v2/logging"}) {
    const HttpReply reply = client->Ask(Get(path));
    EXPECT_EQ(reply.code, 501) << path;
    EXPECT_TRUE(reply.body.starts_with(R"({"error":")")) << reply.body;
    EXPECT_EQ(client->Ask(Post(path, "{}")).code, 501) << path;
  }
}

TEST_F(ApiTest, TheMetricsPortShowsMetricsOnly) {
  Start(HttpRole::kMetricsOnly);
  const auto client = Connect();
  EXPECT_EQ(client->Ask(Get("/metrics")).code, 200);
  EXPECT_EQ(client->Ask(Get("/v2/health/live")).code, 200);
  for (const char* path : {"/", "/v2", "/v2/models/emb", "/api/echo"}) {
    EXPECT_EQ(client->Ask(Get(path)).code, 404) << path;
  }
  EXPECT_EQ(client->Ask(BinaryInfer({1})).code, 404);
  EXPECT_EQ(client->Ask("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n").code, 421);
  EXPECT_EQ(Counted().http.requests, 0u) << "scrapes are no requests";
  EXPECT_EQ(Counted().http.connections, 0u);
}

}  // namespace
}  // namespace hps::server
