// The host that a request names, and whether it is this machine.
//
// A web page of a stranger can give its own name the address 127.0.0.1 (DNS rebinding). The browser
// then lets the page read what a server there answers, but it sends the page's name as Host. So a
// server on the loopback that asks for no token answers to its own names only.
//
// Thread-safe: no state.
#pragma once

#include <string_view>

namespace hps::server {

bool EqualIgnoringCase(std::string_view a, std::string_view b);

// Reads NAME[:PORT], a Host field or the authority of a target (RFC 9112 3.2, RFC 3986 3.2.2).
// `name` is the part before the port, without the dot that may end a name of the DNS, and may be
// empty. A comma, which RFC 3986 allows, is refused: two Host fields that a proxy has joined look
// so. False: this is no host.
bool ParseHost(std::string_view text, std::string_view* name);

// Whether a name that ParseHost has read is localhost, ends with .localhost (RFC 6761), or is an
// address of 127.0.0.0/8 or [::1].
bool IsLocalName(std::string_view name);

// Whether the text of a listener's address (host:port) shows that it is for this machine alone.
bool IsLoopback(std::string_view address);

}  // namespace hps::server
