// The scripts that write shared rows (shared_value.h). A script is atomic: no reader and no other
// script sees the server in between.
//
// The names are of the partition's mark, then of rows. Numbers in the arguments are as in values.
// A mark that is damaged counts as lost: the next script makes a new one, and all rows are gone.
#pragma once

#include "l2_redis/redis_script.h"

namespace hps {

// Inserts rows that are not held, or held with less known of them.
//
//   ARGV  the node's positions; a nonce for a new mark; for each row, the number of its key's
//         partition in the stream (2 bytes, big-endian); milliseconds until rows expire (0: never);
//         the rows without nonces
//
// Returns the number of inserted rows; -1 if the mark is of a generation that this node does not
// have.
const RedisScript& SharedInsertScript();

// Makes changes: replaces and removes rows that are held with lower versions, and moves the mark.
//
//   ARGV  for each partition of the stream, the version that the changes begin with (0: has none);
//         the node's positions behind the changes; a nonce for a new mark; rows without nonces, one
//         without bytes removes what is held
//
// If the mark lacks changes before these, or is lost, it gets the new nonce: all rows are gone.
// Returns the number of changed rows; -1 as above.
const RedisScript& SharedChangeScript();

}  // namespace hps
