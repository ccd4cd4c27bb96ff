package fencing

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// problem is an answer of the middleware (RFC 9457).
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Reason string `json:"reason"`
}

var (
	tokenMissing   = &problem{"there is no token: the way in is the gateway", 403, "token-missing"}
	tokenMalformed = &problem{"the token cannot be read", 400, "token-malformed"}
	stale          = &problem{"a newer request was let in; nothing was done", 412, "stale"}
	unclaimed      = &problem{"the service did not compare the token; the outcome of the request is unknown", 500, "unclaimed"}
	claimedTwice   = &problem{"the service claimed twice; the outcome of the first claim is unknown", 500, "claimed-twice"}

	expired           = &problem{"the request came too late to be begun", 412, "expired"}
	notAfterMissing   = &problem{"there is no Fencing-Not-After: the way in is the gateway", 403, "not-after-missing"}
	notAfterMalformed = &problem{"Fencing-Not-After cannot be read", 400, "not-after-malformed"}
)

// refusal is the field that shows the gateway that a 412 is about the fence, and not about a client's `If-Match`.
const refusal = "Fencing-Refusal"

func (p *problem) write(w http.ResponseWriter) {
	// The fields of the replaced answer.
	for name := range w.Header() {
		delete(w.Header(), name)
	}
	p.send(w)
}

// writeAt refuses a request that no handler has seen, and shows the clock by which it was refused.
func (p *problem) writeAt(w http.ResponseWriter, timing timing) {
	timing.tell(w.Header())
	p.send(w)
}

func (p *problem) send(w http.ResponseWriter) {
	fields := w.Header()
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // Two texts and a number.
	}
	fields.Set("Content-Type", "application/problem+json")
	fields.Set("Content-Length", strconv.Itoa(len(body)))
	if p == stale || p == expired {
		fields.Set(refusal, p.Reason)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // Fails if the client has hung up, and for HEAD.
}
