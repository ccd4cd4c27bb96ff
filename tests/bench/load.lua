-- Asks for keys: every thread for its own part of them in turn, or all threads for one. Ends with one line of numbers.
--
--   wrk ... -s load.lua URL -- METHOD PATH KEYS THREADS
--
-- METHOD is GET, POST, POST:BYTES with a body of that size, ONCE for a POST with an Idempotency-Key of its own each time, or
-- TENURES. The number of the key stands at the end of PATH, or where it has a `*`.

local threads = 0
BODY = '{"amount": 1}'

function setup(thread)
    thread:set("number", threads)
    threads = threads + 1
end

-- Never the same twice, whoever runs beside us.
local function unheard_of()
    return string.format("%d-%s-%d-", os.time(), tostring({}):gsub("[^%x]", ""), number)
end

local function path(pattern, key)
    local found = string.find(pattern, "*", 1, true)
    return found and pattern:sub(1, found - 1) .. key .. pattern:sub(found + 1) or pattern .. key
end

function init(args)
    local method, prefix, keys, threads = args[1], args[2], tonumber(args[3]), tonumber(args[4])
    local share = math.max(1, math.floor(keys / threads))
    local first = number * share % keys
    if method == "ONCE" then
        once = { name = unheard_of(), asked = 0, first = first, share = share, path = prefix }
        return
    end
    local bytes = tonumber(method:match("^POST:(%d+)$"))
    local body = method == "POST" and BODY or bytes and string.rep("x", bytes) or nil
    method = body and "POST" or method
    -- To a guard: a new tenure with every request, larger than all before of its key.
    if method == "TENURES" then
        tenures = { keys = keys, number = number, threads = threads, prefix = prefix, epoch = 1000000 * threads }
        return
    end
    -- Written once: what the generator spends, the servers do not have.
    asks, last = {}, 0
    for i = 1, share do
        asks[i] = wrk.format(method, path(prefix, first + i - 1), nil, body)
    end
end

local function tenure()
    tenures.epoch = tenures.epoch + tenures.threads
    local epoch = tenures.epoch + tenures.number
    local key = string.format("%d/%d", tenures.number, epoch % tenures.keys)
    local fields = {
        ["Fencing-Token"] = string.format("v1-%016x-00000000-00000001", epoch),
        ["Fencing-Key"] = key,
        ["Fencing-Mode"] = "exclusive",
    }
    return wrk.format("GET", tenures.prefix .. key, fields)
end

local function operation()
    once.asked = once.asked + 1
    local fields = { ["Idempotency-Key"] = once.name .. once.asked, ["Content-Type"] = "application/json" }
    return wrk.format("POST", path(once.path, once.first + once.asked % once.share), fields, BODY)
end

function request()
    if once then
        return operation()
    end
    if tenures then
        return tenure()
    end
    last = last % #asks + 1
    return asks[last]
end

function done(summary, latency, requests)
    local errors = summary.errors
    local broken = errors.connect + errors.read + errors.write + errors.timeout
    io.write(string.format("RESULT %d %d %d %d %d\n", summary.requests, summary.duration, errors.status, broken,
        latency:percentile(99)))
end
