// What nghttp2's session is made with: its callbacks, which hand over to the connection, and its
// settings. No exception leaves a callback.
//
// Thread-safe: made once.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>

namespace hps::server {

class GrpcConnection;

// What is received of one stream before its turn, at most; and of a connection, which is given back
// at once.
inline constexpr int32_t kStreamWindowBytes = 256 << 10;
inline constexpr int32_t kConnectionWindowBytes = 16 << 20;
inline constexpr uint32_t kConnectionCallsMax = 1024;

class GrpcSession {
 public:
  // A server's session with its first SETTINGS. Null: no memory.
  static nghttp2_session* Create(GrpcConnection& connection);

  // Provides a stream's answer.
  static ssize_t ReadData(nghttp2_session* session, int32_t id, uint8_t* buffer, size_t bytes_max,
                          uint32_t* flags, nghttp2_data_source* source, void* connection);

 private:
  static int OnBeginFields(nghttp2_session* session, const nghttp2_frame* frame, void* connection);
  static int OnField(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                     size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t flags,
                     void* connection);
  static int OnFrame(nghttp2_session* session, const nghttp2_frame* frame, void* connection);
  static int OnData(nghttp2_session* session, uint8_t flags, int32_t id, const uint8_t* data,
                    size_t bytes, void* connection);
  static int OnClosed(nghttp2_session* session, int32_t id, uint32_t error, void* connection);
  static int OnSent(nghttp2_session* session, const nghttp2_frame* frame, void* connection);
  static int SendData(nghttp2_session* session, nghttp2_frame* frame, const uint8_t* head,
                      size_t bytes, nghttp2_data_source* source, void* connection);
  static const nghttp2_session_callbacks* Callbacks();
};

}  // namespace hps::server
