-- Asks a gateway for the lock of a request, stamps what it answers, and tells the end.

local url, token = os.getenv("FENCEGATE_URL"), os.getenv("FENCEGATE_TOKEN")
-- The lock is held for `held`, above `timeout connect` and `timeout server` together: a request that takes longer loses its
-- lock while it runs.
local place = url .. "/.fencegate/v1/auth"
local held = 20000
local stamped = { "fencing-token", "fencing-number", "fencing-key", "fencing-mode", "fencing-ticket" }

core.register_action("fence", { "http-req" }, function(txn)
    -- A client must not write any field of Fencegate, in no spelling that a service could take for one: CGI, WSGI and Rack read
    -- `Fencing_Token` and `Fencing.Token` as `Fencing-Token`.
    for name, _ in pairs(txn.http:req_get_headers()) do
        local letters = name:lower():gsub("[^%a%d]", "")
        if letters:find("^fencing") then
            txn.http:req_del_header(name)
        end
    end
    -- Nor name one in `Connection`, which goes on to the service: a proxy there would take off what is stamped below.
    for _, line in pairs(txn.http:req_get_headers()["connection"] or {}) do
        if line:lower():find("fencing", 1, true) then
            txn.http:req_del_header("connection")
        end
    end
    -- All that the policy may look at, as the client has sent it, but what only we may say.
    local headers = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        -- `x-original-url` is none of ours: a service may obey it, so the gateway has to see it.
        local ours = name == "x-original-method" or name == "x-original-uri" or name == "x-original-host" or name:find("^x%-forwarded%-")
        local hop = name == "connection" or name == "content-length" or name == "transfer-encoding" or name == "upgrade"
        if not ours and not hop then
            headers[name] = {}
            for at = 0, #values do
                table.insert(headers[name], values[at])
            end
        end
    end
    local target, query = txn.sf:path(), txn.sf:query()
    if query ~= "" then
        target = target .. "?" .. query
    end
    headers["fencing-authorization"] = { "Bearer " .. token }
    headers["x-original-method"] = { txn.sf:method() }
    headers["x-original-uri"] = { target }
    local answer = core.httpclient():get({
        url = place .. "?ttl_ms=" .. held,
        timeout = 30000,
        headers = headers,
    })
    if answer == nil or answer.status ~= 200 then
        txn:set_var("txn.fence_refused", 1)
        return
    end
    for _, name in ipairs(stamped) do
        local values = answer.headers[name]
        if values ~= nil then
            txn.http:req_set_header(name, values[0])
        end
    end
    local lease = answer.headers["fencing-lease"]
    if lease ~= nil then
        txn:set_var("txn.fence_lease", lease[0])
    end
end, 0)

-- The end of the answer of the service. What HAProxy answers by itself does not come through here: then the lock is held until
-- its time is over, as it must, because the service may still be at work.
local End = {}
End.__index = End
End.id = "the end of what runs under a lock"
End.flags = filter.FLT_CFG_FL_HTX

function End:new()
    return setmetatable({}, End)
end

function End:start_analyze(txn, channel)
    if channel:is_resp() then
        filter.register_data_filter(self, channel)
    end
end

function End:http_end(txn, message)
    local lease = txn:get_var("txn.fence_lease")
    if not message:is_resp() or lease == nil then
        return
    end
    core.register_task(function()
        core.httpclient():delete({ url = place, timeout = 5000, headers = { ["fencing-lease"] = { lease } } })
    end)
end

core.register_filter("fence_end", End, function(instance, _)
    return instance
end)
