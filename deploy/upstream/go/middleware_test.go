package fencing

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func quiet() Option { return LogTo(log.New(io.Discard, "", 0)) }

func TestAStaleClaimThatPanicsIsToldAsStale(t *testing.T) {
	all := played(t)
	for _, failure := range []error{ErrStale, fmt.Errorf("debit: %w", ErrStale), errors.New("another one")} {
		marks := &scripted{meets: []string{"stale"}}
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = FenceFromContext(r.Context()).Claim(r.Context(), marks)
			panic(failure)
		})
		response, body := exchange(t, New(marks, quiet())(handler), "POST", stamped)
		all.isAnswer(t, failure.Error(), "stale", response, body)
	}
}

func TestAStreamThatBeginsWithoutAClaimIsReplaced(t *testing.T) {
	all := played(t)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.(http.Flusher).Flush()
		for i := 0; i < 1000; i++ {
			fmt.Fprint(w, strings.Repeat("x", 1000))
		}
	})
	response, body := exchange(t, New(&scripted{}, quiet())(handler), "POST", stamped)
	all.isAnswer(t, "a stream", "unclaimed", response, body)
}

func TestAHandlerMayAbortItsAnswer(t *testing.T) {
	marks := &scripted{meets: []string{"stale"}}
	server := httptest.NewServer(New(marks, quiet())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = FenceFromContext(r.Context()).Claim(r.Context(), marks)
		panic(http.ErrAbortHandler)
	})))
	defer server.Close()
	request := httptest.NewRequest("POST", server.URL, nil)
	request.RequestURI = ""
	for _, field := range stamped {
		request.Header.Set(field[0], field[1])
	}
	if response, err := http.DefaultClient.Do(request); err == nil {
		t.Errorf("an answer: %s", response.Status)
	}
}

func TestAHandlersOwnRefusalPasses(t *testing.T) {
	marks := &scripted{meets: []string{"stale"}}
	handler := HandlerFunc(func(w http.ResponseWriter, r *http.Request, fence *Fence) error {
		_ = fence.Claim(r.Context(), marks)
		w.Header().Set("Fencing-Refusal", "stale")
		http.Error(w, "its own words", http.StatusPreconditionFailed)
		return nil
	})
	response, body := exchange(t, New(marks)(handler), "POST", stamped)
	if response.StatusCode != 412 || string(body) != "its own words\n" || response.Header.Get("Fencing-Refusal") != "stale" {
		t.Errorf("%s %v %s", response.Status, response.Header, body)
	}
}

func TestAnUnfencedMethodPassesWithoutAnyField(t *testing.T) {
	all := played(t)
	free := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if FenceFromContext(r.Context()) == nil {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	middleware := New(&scripted{}, Unfenced("GET", "HEAD"), quiet())(free)
	for _, method := range []string{"GET", "HEAD"} {
		if response, _ := exchange(t, middleware, method, nil); response.StatusCode != http.StatusTeapot {
			t.Errorf("%s: %s", method, response.Status)
		}
	}
	response, body := exchange(t, middleware, "POST", nil)
	all.isAnswer(t, "a method that is fenced", "token-missing", response, body)
	response, body = exchange(t, middleware, "GET", [][2]string{{"Fencing_Key", "a"}})
	all.isAnswer(t, "a look-alike", "token-missing", response, body)
	response, body = exchange(t, middleware, "GET", stamped)
	all.isAnswer(t, "a fenced one", "unclaimed", response, body)
	if response, body = exchange(t, middleware, "HEAD", stamped); response.StatusCode != 500 || len(body) > 0 {
		t.Errorf("HEAD: %s %s", response.Status, body)
	}
}

func TestFieldsHaveOtherNamesWhereThePolicySaysSo(t *testing.T) {
	all := played(t)
	done := HandlerFunc(func(_ http.ResponseWriter, r *http.Request, fence *Fence) error {
		return fence.Claim(r.Context(), &scripted{})
	})
	renamed := func() http.Handler {
		return New(&scripted{meets: []string{"passes"}}, Fields("X-Token", "X-Number"), quiet())(done)
	}
	fields := [][2]string{{"x-token", stamped[0][1]}, {"x-number", "171"}, stamped[1], stamped[2]}
	if response, body := exchange(t, renamed(), "POST", fields); response.StatusCode != 200 {
		t.Errorf("%s %s", response.Status, body)
	}
	response, body := exchange(t, renamed(), "POST", append(fields, [2]string{"x_token", "1"}))
	all.isAnswer(t, "a look-alike", "token-malformed", response, body)
	response, body = exchange(t, renamed(), "POST", stamped)
	all.isAnswer(t, "the usual name", "token-missing", response, body)
	defer func() {
		if recover() == nil {
			t.Error("one name for two fields")
		}
	}()
	New(nil, Fields("Fencing-Key", "X-Number"))
}

// The names before the renames work for one version.
func TestFormerNamesStillWork(t *testing.T) {
	var marks Marks = &scripted{meets: []string{"passes"}}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := From(r.Context()).Claim(r.Context(), &scripted{}); err != nil || DeadlineFrom(r.Context()).IsOver() {
			t.Error(err, DeadlineFrom(r.Context()))
		}
	})
	fields := append([][2]string{{"Fencing-Not-After", fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())}}, stamped...)
	if response, body := exchange(t, InTime()(New(marks, quiet())(handler)), "POST", fields); response.StatusCode != 200 {
		t.Errorf("%s %s", response.Status, body)
	}
}

// The statements stand here so that a service can take this folder alone; they are those of the recipe.
func TestTheStatementsAreThoseOfTheRecipe(t *testing.T) {
	for compare, file := range map[Compare]string{ByToken: "token", ByNumber: "number"} {
		text, err := os.ReadFile("../postgresql/" + file + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		for mode, section := range map[Mode]string{Exclusive: "write", Shared: "read"} {
			_, rest, _ := strings.Cut(string(text), "-- "+section+"\n")
			statement, _, _ := strings.Cut(rest, "\n\n")
			statement = regexp.MustCompile(`:key\b`).ReplaceAllString(statement, "$$1")
			statement = regexp.MustCompile(`:(token|number)\b`).ReplaceAllString(statement, "$$2")
			if own := statements[compare][mode]; strings.TrimSpace(own) != strings.TrimSpace(statement) {
				t.Errorf("%s, %s: wanted\n%s\nhere is\n%s", file, section, statement, own)
			}
		}
	}
}
