-- Claims the fence, or ends with the error STALE and has changed nothing. The effect is appended to this text.
-- KEYS: the floor, then the marks of each key of the request; after them those of the effect.
-- ARGV: form (token, number), mode (exclusive, shared), the token or number, how many keys; after them those of the effect.
local form, mode, presented, count = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

-- Byte by byte: the `<` of Lua asks the locale of the server, and its numbers are floats.
local function order(one, other)
    if form == 'number' and #one ~= #other then
        return #one < #other and -1 or 1
    end
    for at = 1, math.min(#one, #other) do
        local a, b = one:byte(at), other:byte(at)
        if a ~= b then
            return a < b and -1 or 1
        end
    end
    return #one == #other and 0 or (#one < #other and -1 or 1)
end

local function passes(mark)
    local which = order(presented, mark)
    return which > 0 or (which == 0 and form == 'number')
end

local stale = order(presented, redis.call('HGET', KEYS[1], 'floor') or '') <= 0
for at = 2, count + 1 do
    local write_mark, read_mark = unpack(redis.call('HMGET', KEYS[at], 'write', 'read'))
    stale = stale or not passes(write_mark or '') or (mode == 'exclusive' and not passes(read_mark or ''))
end
if stale then
    return redis.error_reply('STALE a newer request was let in; nothing was done')
end
for at = 2, count + 1 do
    if mode == 'exclusive' then
        redis.call('HSET', KEYS[at], 'write', presented)
    elseif order(presented, redis.call('HGET', KEYS[at], 'read') or '') > 0 then
        redis.call('HSET', KEYS[at], 'read', presented)
    end
end
if order(presented, redis.call('HGET', KEYS[1], 'newest') or '') > 0 then
    redis.call('HSET', KEYS[1], 'newest', presented)
end

