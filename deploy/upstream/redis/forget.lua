-- Raises the floor when its time has come, and then deletes those marks that it stands for. Answers how many.
-- KEYS: the floor, then some marks, as SCAN finds them. ARGV: form (token, number), seconds between two raises.
local form, seconds = ARGV[1], tonumber(ARGV[2])

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

local now = tonumber(redis.call('TIME')[1])
local floor, next_floor, newest, raised = unpack(redis.call('HMGET', KEYS[1], 'floor', 'next_floor', 'newest', 'raised'))
if not raised then
    redis.call('HSET', KEYS[1], 'next_floor', newest or '', 'raised', now)
elseif tonumber(raised) <= now - seconds then
    floor = next_floor or ''
    redis.call('HSET', KEYS[1], 'floor', floor, 'next_floor', newest or '', 'raised', now)
end
local deleted = 0
for at = 2, #KEYS do
    local write_mark, read_mark = unpack(redis.call('HMGET', KEYS[at], 'write', 'read'))
    local mark = write_mark or ''
    if order(read_mark or '', mark) > 0 then
        mark = read_mark
    end
    if floor and order(mark, floor) <= 0 then
        deleted = deleted + redis.call('DEL', KEYS[at])
    end
end
return deleted
