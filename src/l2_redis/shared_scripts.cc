#include "l2_redis/shared_scripts.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

// Versions are compared as pairs of numbers: a number of Lua has 53 bits.
constexpr char kCommonScript[] = R"(
local function is_less(a, i, b, j)
  local a_high, a_low = struct.unpack('>I4I4', a, i)
  local b_high, b_low = struct.unpack('>I4I4', b, j)
  return a_high < b_high or (a_high == b_high and a_low < b_low)
end
local function generation_of(versions, at)
  return #versions > at and struct.unpack('>I2', versions, at + 1) or 0
end
local function with_checksum(mark)
  local sum = #mark
  for i = 1, #mark, 8 do
    local high, low = struct.unpack('>I4I4', mark, i)
    sum = (sum * 1000003 + high) % 4294967296
    sum = (sum * 1000003 + low) % 4294967296
  end
  return mark .. struct.pack('>I4', sum)
end
-- Without its checksum; false if it is lost, damaged, or not a string.
local function mark_of(name)
  local held = redis.pcall('GET', name)
  if type(held) ~= 'string' or #held % 8 ~= 4 or #held < 12 then return false end
  local mark = string.sub(held, 1, -5)
  return string.byte(mark) < 128 and with_checksum(mark) == held and mark
end
-- Nonce and versions of a row; '' if the value is no string or is too short.
local function head_of(name)
  local held = redis.pcall('GETRANGE', name, 0, 23)
  return type(held) == 'string' and #held == 24 and held or ''
end
local function late(nonce)
  return string.char(string.byte(nonce) + 128) .. string.sub(nonce, 2)
end
)";

constexpr char kInsertScript[] = R"(
local positions = ARGV[1]
local mark = mark_of(KEYS[1])
if not mark or generation_of(mark, 8) < generation_of(positions, 0) then
  mark = ARGV[2] .. positions
  redis.call('SET', KEYS[1], with_checksum(mark))
elseif #mark ~= #positions + 8 or generation_of(mark, 8) ~= generation_of(positions, 0) then
  return -1
end
local fresh_nonce = string.sub(mark, 1, 8)
local late_nonce = late(fresh_nonce)
local inserted = 0
for i = 2, #KEYS do
  local row = ARGV[i + 3]
  local is_late = false
  if #mark > 8 then
    is_late = is_less(row, 9, mark, 9 + 8 * struct.unpack('>I2', ARGV[3], 2 * i - 3))
  end
  local held = head_of(KEYS[i])
  local nonce = string.sub(held, 1, 8)
  local stays = false
  if nonce == fresh_nonce then
    stays = is_late or not is_less(held, 17, row, 9)
  elseif nonce == late_nonce then
    stays = is_late and not is_less(held, 17, row, 9)
  end
  if not stays then
    local value = (is_late and late_nonce or fresh_nonce) .. row
    if ARGV[4] == '0' then
      redis.call('SET', KEYS[i], value)
    else
      redis.call('SET', KEYS[i], value, 'PX', ARGV[4])
    end
    inserted = inserted + 1
  end
end
return inserted
)";

// A server without room refuses SET, and takes DEL: what can't be changed is removed. Then the mark
// may move, and if it can't, it is removed.
constexpr char kChangeScript[] = R"(
local from, to, nonce = ARGV[1], ARGV[2], ARGV[3]
local function set(name, ...)
  local done = redis.pcall('SET', name, ...)
  if type(done) == 'table' and done.err then redis.call('DEL', name) end
end
local mark = mark_of(KEYS[1])
if mark then
  local known, own = generation_of(mark, 8), generation_of(to, 0)
  if known > own or (known == own and #mark ~= #to + 8) then return -1 end
  if known < own then mark = false end
end
local is_new, is_done, is_behind = not mark, true, false
for i = 1, mark and #to or 0, 8 do
  if string.sub(from, i, i + 7) ~= '\0\0\0\0\0\0\0\0' then
    if is_less(mark, 8 + i, from, i) then is_new = true end
    if is_less(mark, 8 + i, to, i) then is_done = false end
    if is_less(to, i, mark, 8 + i) then is_behind = true end
  end
end
local behind = {}
for i = 1, #to, 8 do
  local has_changes = string.sub(from, i, i + 7) ~= '\0\0\0\0\0\0\0\0'
  local moves = not mark or ((is_new or has_changes) and is_less(mark, 8 + i, to, i))
  behind[#behind + 1] = moves and string.sub(to, i, i + 7) or string.sub(mark, 8 + i, 15 + i)
end
if is_new then
  set(KEYS[1], with_checksum(nonce .. table.concat(behind)))
  return 0
end
if is_done then return 0 end
local fresh_nonce = string.sub(mark, 1, 8)
local late_nonce = late(fresh_nonce)
local changed = 0
-- Of a partition in which this node is behind the mark, a late row stays late: other changes of its
-- key may be missing.
for i = 2, #KEYS do
  local row = ARGV[i + 2]
  local held = head_of(KEYS[i])
  local held_nonce = string.sub(held, 1, 8)
  if (held_nonce == fresh_nonce or held_nonce == late_nonce) and is_less(held, 9, row, 1) then
    if #row == 20 then
      redis.call('DEL', KEYS[i])
    else
      set(KEYS[i], (is_behind and held_nonce or fresh_nonce) .. row, 'KEEPTTL')
    end
    changed = changed + 1
  end
end
set(KEYS[1], with_checksum(fresh_nonce .. table.concat(behind)))
return changed
)";

}  // namespace

const RedisScript& SharedInsertScript() {
  static const RedisScript script = MakeRedisScript(absl::StrCat(kCommonScript, kInsertScript));
  return script;
}

const RedisScript& SharedChangeScript() {
  static const RedisScript script = MakeRedisScript(absl::StrCat(kCommonScript, kChangeScript));
  return script;
}

}  // namespace hps
