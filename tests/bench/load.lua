-- Asks for keys: every thread for its own part of them in turn, or all threads for one. Ends with one line of numbers.
--
--   wrk ... -s load.lua URL -- METHOD PREFIX KEYS THREADS

local threads = 0

function setup(thread)
    thread:set("number", threads)
    threads = threads + 1
end

function init(args)
    local method, prefix, keys, threads = args[1], args[2], tonumber(args[3]), tonumber(args[4])
    local share = math.max(1, math.floor(keys / threads))
    local first = number * share % keys
    local body = method == "POST" and '{"amount": 1}' or nil
    -- To a guard: a new tenure with every request, larger than all before of its key.
    if method == "TENURES" then
        tenures = { keys = keys, number = number, threads = threads, prefix = prefix, epoch = 1000000 * threads }
        return
    end
    -- Written once: what the generator spends, the servers do not have.
    asks, last = {}, 0
    for i = 1, share do
        asks[i] = wrk.format(method, prefix .. (first + i - 1), nil, body)
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

function request()
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
