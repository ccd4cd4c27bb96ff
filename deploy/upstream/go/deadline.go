package fencing

import (
	"context"
	"net/http"
)

// NewDeadline gives a middleware that refuses requests which come too late to be begun. It needs no database, and compares no token.
// Of the options it takes Unfenced and ClockError: a request of an unfenced method passes if it has neither Fencing-Not-After
// nor Fencing-Key.
func NewDeadline(options ...Option) func(http.Handler) http.Handler {
	settings := newSettings(options)
	return func(next http.Handler) http.Handler {
		return &deadlineMiddleware{settings: settings, next: next}
	}
}

// InTime is the former name of NewDeadline.
//
// Deprecated: use NewDeadline.
func InTime(options ...Option) func(http.Handler) http.Handler { return NewDeadline(options...) }

type deadlineMiddleware struct {
	*settings
	next http.Handler
}

func (m *deadlineMiddleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.isUnfenced(r.Method) && !hasSpelling(r.Header, notAfterField) && !hasSpelling(r.Header, "Fencing-Key") {
		m.next.ServeHTTP(w, r)
		return
	}
	deadline, refused := m.timing.read(r.Header)
	if deadline == nil && refused == nil {
		refused = notAfterMissing
	}
	if refused != nil {
		refused.writeAt(w, m.timing)
		return
	}
	m.timing.tell(w.Header())
	m.next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), deadlineKey{}, deadline)))
}

func hasSpelling(fields http.Header, wanted string) bool {
	for name := range fields {
		if plain(name) == plain(wanted) {
			return true
		}
	}
	return false
}

type deadlineKey struct{}

// DeadlineFromContext gives the deadline of a request behind NewDeadline; nil where it has none, because its method is unfenced.
func DeadlineFromContext(ctx context.Context) *Deadline {
	deadline, _ := ctx.Value(deadlineKey{}).(*Deadline)
	return deadline
}

// DeadlineFrom is the former name of DeadlineFromContext.
//
// Deprecated: use DeadlineFromContext.
func DeadlineFrom(ctx context.Context) *Deadline { return DeadlineFromContext(ctx) }
