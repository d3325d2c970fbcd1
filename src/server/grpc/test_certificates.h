// Certificates for tests, valid for a hundred years and of no use elsewhere: two of a server named
// "localhost" and one of a client, each its own authority.
#pragma once

namespace hps::server {

inline constexpr const char* kFirstCertificate =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBlDCCATugAwIBAgIUeTa7ESgf3hBdhP/PHqt375TU8uwwCgYIKoZIzj0EAwIw\n"
    "FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTA1MDE0OFoYDzIxMjYxMDI4\n"
    "MDUwMTQ4WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n"
    "PQMBBwNCAARMOOC6Kg40nLsesGvLis0G5LmxtkGZUYiUbGyW+3P2ekOl0rsoQBef\n"
    "61t2GoElgqPEsIhLdoRxb4gE8MNP/DsIo2kwZzAdBgNVHQ4EFgQUct1iEz1+/+aN\n"
    "OzC7KU9yoX11JkgwHwYDVR0jBBgwFoAUct1iEz1+/+aNOzC7KU9yoX11JkgwDwYD\n"
    "VR0TAQH/BAUwAwEB/zAUBgNVHREEDTALgglsb2NhbGhvc3QwCgYIKoZIzj0EAwID\n"
    "RwAwRAIgRc0xrngHjjkyloH3sTEN5EiKQiI08+t4N5UxqYVN8QMCID3/QuRyl/Eh\n"
    "I2sRYH/OStFdUh3wykWw6PQqWgNKTJDz\n"
    "-----END CERTIFICATE-----\n";
inline constexpr const char* kFirstKey =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgZVQoajbWTRi5WYw9\n"
    "108xmbLhrHP2jRk6XCm6DBMu/nmhRANCAARMOOC6Kg40nLsesGvLis0G5LmxtkGZ\n"
    "UYiUbGyW+3P2ekOl0rsoQBef61t2GoElgqPEsIhLdoRxb4gE8MNP/DsI\n"
    "-----END PRIVATE KEY-----\n";

inline constexpr const char* kSecondCertificate =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBljCCATugAwIBAgIUH81K/kxdqvqxUfqU4Uj9MENFqYcwCgYIKoZIzj0EAwIw\n"
    "FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTA1MDE0OFoYDzIxMjYxMDI4\n"
    "MDUwMTQ4WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n"
    "PQMBBwNCAAT9yq/DY9YYQx6IMeHr5oQeLq5IdaKNh+SCgqYKysZI3aLp4ufYTXX4\n"
    "MpL3XCRCtW6sGt4mhHDxnxzhZQcVvnwlo2kwZzAdBgNVHQ4EFgQUgEOmOC3NBooA\n"
    "OupqRAau2doRLy8wHwYDVR0jBBgwFoAUgEOmOC3NBooAOupqRAau2doRLy8wDwYD\n"
    "VR0TAQH/BAUwAwEB/zAUBgNVHREEDTALgglsb2NhbGhvc3QwCgYIKoZIzj0EAwID\n"
    "SQAwRgIhALPyJzGF0Ux68RHaj+SrF5fbO5Cqw40cLf17eLGucVecAiEAnTZowy12\n"
    "xwIrSU8scmf5CK3PfswpvocddW5RXgh6PkE=\n"
    "-----END CERTIFICATE-----\n";
inline constexpr const char* kSecondKey =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgEuLLzdNx2jOxWUXG\n"
    "LEnbYTYNLI+Sy2RGCbzWcw6MqzOhRANCAAT9yq/DY9YYQx6IMeHr5oQeLq5IdaKN\n"
    "h+SCgqYKysZI3aLp4ufYTXX4MpL3XCRCtW6sGt4mhHDxnxzhZQcVvnwl\n"
    "-----END PRIVATE KEY-----\n";

inline constexpr const char* kClientCertificate =
    "-----BEGIN CERTIFICATE-----\n"
    "MIIBlTCCATugAwIBAgIUGpmoDWW+bnunnP3XRxfSxT314FwwCgYIKoZIzj0EAwIw\n"
    "FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMTA1MDE0OFoYDzIxMjYxMDI4\n"
    "MDUwMTQ4WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n"
    "PQMBBwNCAARLo3wPmZgLLNs+TxO1/Doa+i5Ir8Sd5ZC2lYPl3afyAN+VPgSaAgEL\n"
    "rchLIKZrQvO0KwTwRWk8HTczONgp7NLEo2kwZzAdBgNVHQ4EFgQUlHL9mf9b9R0y\n"
    "rjeEfMcN1srb8UgwHwYDVR0jBBgwFoAUlHL9mf9b9R0yrjeEfMcN1srb8UgwDwYD\n"
    "VR0TAQH/BAUwAwEB/zAUBgNVHREEDTALgglsb2NhbGhvc3QwCgYIKoZIzj0EAwID\n"
    "SAAwRQIgb0wOacK1GqlfGPbCZPLLgSyv14TmlgyrvN7NrpwsZIACIQCS3xRKyRDM\n"
    "0zS9sUmeduNmZKzDjNhbDBmk4EEAPZU0JQ==\n"
    "-----END CERTIFICATE-----\n";
inline constexpr const char* kClientKey =
    "-----BEGIN PRIVATE KEY-----\n"
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgbUUzv+8mV9MuXGE1\n"
    "ESJJYxeJtjj0w29yNDL7dh0jHF2hRANCAARLo3wPmZgLLNs+TxO1/Doa+i5Ir8Sd\n"
    "5ZC2lYPl3afyAN+VPgSaAgELrchLIKZrQvO0KwTwRWk8HTczONgp7NLE\n"
    "-----END PRIVATE KEY-----\n";

}  // namespace hps::server
