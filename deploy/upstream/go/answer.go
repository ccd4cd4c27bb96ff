package fencing

import (
	"errors"
	"net/http"
	"runtime/debug"
)

// answer holds the handler's answer back until its head is known, and decides then whether it may be given.
type answer struct {
	http.ResponseWriter
	request *http.Request
	fence   *Fence
	begun   bool
	// What the handler writes goes nowhere: something else was answered in its place.
	replaced bool
}

// WriteHeader is where an answer begins.
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

// Flush sends what is there, for handlers that stream.
func (a *answer) Flush() {
	a.WriteHeader(http.StatusOK)
	if flusher, can := a.ResponseWriter.(http.Flusher); can && !a.replaced {
		flusher.Flush()
	}
}

// end is called when the handler is over, by a panic also.
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
	// Left to the server, the panic would close the connection, and nobody were told that nothing was done.
	a.WriteHeader(http.StatusInternalServerError)
}
