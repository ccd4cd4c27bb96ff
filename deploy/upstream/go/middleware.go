// Package fencing lets a service refuse requests that were overtaken: it compares their fencing tokens with the newest
// that it has seen, in the transaction of the effect.
package fencing

import (
	"context"
	"net/http"
)

// New gives a middleware for the routes that the policy fences. Their handlers have to claim before they say that
// something is done.
func New(watermarks WatermarkStore, options ...Option) func(http.Handler) http.Handler {
	settings := newSettings(options)
	return func(next http.Handler) http.Handler {
		return &middleware{settings: settings, watermarks: watermarks, next: next}
	}
}

type middleware struct {
	*settings
	watermarks WatermarkStore
	next       http.Handler
}

func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Where it is asked for, a request that came too late is refused before its token is read. The field may be missing.
	if m.looksAtMoment {
		if _, refused := m.timing.read(r.Header); refused != nil {
			refused.writeAt(w, m.timing)
			return
		}
	}
	found := m.present(r.Header)
	if m.isUnfenced(r.Method) && found.nothing() {
		m.next.ServeHTTP(w, r)
		return
	}
	stamp, refused := m.read(r.Header, found)
	if refused != nil {
		refused.write(w)
		return
	}
	fence := &Fence{Stamp: *stamp, watermarks: m.watermarks, compare: m.compare, log: m.log}
	held := &answer{ResponseWriter: w, request: r, fence: fence}
	defer held.end()
	m.next.ServeHTTP(held, r.WithContext(context.WithValue(r.Context(), contextKey{}, fence)))
}

type contextKey struct{}

// FenceFromContext gives the fence of a request; nil where it has none, because its method is unfenced.
func FenceFromContext(ctx context.Context) *Fence {
	fence, _ := ctx.Value(contextKey{}).(*Fence)
	return fence
}

// From is the former name of FenceFromContext.
//
// Deprecated: use FenceFromContext.
func From(ctx context.Context) *Fence { return FenceFromContext(ctx) }
