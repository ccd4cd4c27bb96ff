package fencing

import (
	"errors"
	"log"
	"net/http"
)

// HandlerFunc is a handler that is given its fence, and may fail by an error, such as that of its claim.
type HandlerFunc func(w http.ResponseWriter, r *http.Request, fence *Fence) error

func (h HandlerFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fence := FenceFromContext(r.Context())
	err := h(w, r, fence)
	if err == nil {
		return
	}
	if !errors.Is(err, ErrStale) {
		logger := log.Default()
		if fence != nil {
			logger = fence.log
		}
		logger.Printf("error: %s %s: %v", r.Method, r.URL.EscapedPath(), err)
	}
	if held, is := w.(*answer); is && held.begun {
		panic(http.ErrAbortHandler) // The head of the answer is sent already, and the body would not fit it: break off.
	}
	// The middleware answers a stale request itself.
	http.Error(w, "the service failed", http.StatusInternalServerError)
}
