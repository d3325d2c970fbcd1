// Certificates for tests of TLS, made on the spot: of "localhost", self-signed, so that each is its
// own CA.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "openssl/evp.h"
#include "openssl/pem.h"
#include "openssl/ssl.h"
#include "openssl/x509.h"
#include "openssl/x509v3.h"

namespace hps {

struct TestCertificate {
  std::string certificate_pem;
  std::string key_pem;
};

struct FreeOpenSsl {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
};

inline std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(size));
}

inline void AddExtension(X509* certificate, int name, const char* value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, name, value);
  EXPECT_EQ(X509_add_ext(certificate, extension, -1), 1);
  X509_EXTENSION_free(extension);
}

inline TestCertificate MakeTestCertificate() {
  char curve[] = "P-256";  // EVP_EC_gen would cast a literal's const away
  const std::unique_ptr<EVP_PKEY, FreeOpenSsl> key(
      EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", curve));
  const std::unique_ptr<X509, FreeOpenSsl> certificate(X509_new());
  static long serial = 1;
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* const name = X509_get_subject_name(certificate.get());
  static const unsigned char kName[] = "localhost";
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, kName, -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  AddExtension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate.get(), NID_subject_alt_name, "DNS:localhost");
  EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  const std::unique_ptr<BIO, FreeOpenSsl> certificate_text(BIO_new(BIO_s_mem()));
  const std::unique_ptr<BIO, FreeOpenSsl> key_text(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(certificate_text.get(), certificate.get());
  PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return {.certificate_pem = TextOf(certificate_text.get()), .key_pem = TextOf(key_text.get())};
}

inline void UseCertificate(SSL_CTX* context, const TestCertificate& from) {
  const std::unique_ptr<BIO, FreeOpenSsl> certificate_text(
      BIO_new_mem_buf(from.certificate_pem.data(), static_cast<int>(from.certificate_pem.size())));
  const std::unique_ptr<BIO, FreeOpenSsl> key_text(
      BIO_new_mem_buf(from.key_pem.data(), static_cast<int>(from.key_pem.size())));
  const std::unique_ptr<X509, FreeOpenSsl> certificate(
      PEM_read_bio_X509(certificate_text.get(), nullptr, nullptr, nullptr));
  const std::unique_ptr<EVP_PKEY, FreeOpenSsl> key(
      PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr));
  EXPECT_EQ(SSL_CTX_use_certificate(context, certificate.get()), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey(context, key.get()), 1);
}

}  // namespace hps
