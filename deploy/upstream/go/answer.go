package fencing

import (
	"errors"
	"net/http"
	"runtime/debug"
)

// answer holds the handler's answer back until its head is known, and then decides whether it may be sent.
type answer struct {
	http.ResponseWriter
	request *http.Request
	fence   *Fence
	begun   bool
	// The handler's bytes are discarded, because another answer was sent.
	replaced bool
}

// WriteHeader begins the answer.
func (a *answer) WriteHeader(status int) {
	if a.begun {
		return
	}
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.begun = true
	problem := a.fence.objection(status, a.Header())
	if problem == nil {
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.replaced = true
	if problem == unclaimed {
		a.fence.log.Printf("error: %s %s %s: answered %d without a claim: it may have taken effect, and a stale request "+
			"would have as well; call claim() in the transaction of the effect",
			a.request.Method, a.request.URL.EscapedPath(), a.fence.name(), status)
	}
	problem.write(a.ResponseWriter)
}

func (a *answer) Write(body []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.replaced {
		return len(body), nil
	}
	return a.ResponseWriter.Write(body)
}

// Flush sends the bytes so far, for handlers that stream.
func (a *answer) Flush() {
	a.WriteHeader(http.StatusOK)
	if flusher, can := a.ResponseWriter.(http.Flusher); can && !a.replaced {
		flusher.Flush()
	}
}

// end is called when the handler is over, also after a panic.
func (a *answer) end() {
	failure := recover()
	if failure == nil {
		a.WriteHeader(http.StatusOK)
		return
	}
	if a.begun || failure == http.ErrAbortHandler || a.fence.objection(http.StatusInternalServerError, a.Header()) == nil {
		panic(failure)
	}
	if err, is := failure.(error); !is || !errors.Is(err, ErrStale) {
		a.fence.log.Printf("error: %s %s: panic: %v\n%s", a.request.Method, a.request.URL.EscapedPath(), failure, debug.Stack())
	}
	// If the panic went on to the server, it would close the connection, and the client would not learn that nothing was done.
	a.WriteHeader(http.StatusInternalServerError)
}
