package fencing

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

type vectors struct {
	Answers []struct {
		Reason, Title, Refusal string
		Status                 int
	}
	Requests []struct {
		Name, Compare, Refused string
		Fields                 [][2]string
		Accepted               *accepted
	}
	Handlers []struct {
		Name   string
		Claims []string
		Status int
		Sent   any
	}
	NotAfter []struct {
		Name, Refused string
		Fields        [][2]string
		Read          *struct {
			NotAfter int64 `json:"not_after"`
			Boot     *string
			Uptime   *int64
		}
	} `json:"not_after"`
	InTime []struct {
		Name, Value string
		ClockError  int64 `json:"clock_error"`
		Now         struct {
			Wall   int64
			Boot   *string
			Uptime *int64
		}
		InTime bool `json:"in_time"`
	} `json:"in_time"`
}

type accepted struct {
	Token  *string  `json:"token"`
	Number string   `json:"number"`
	Keys   []string `json:"keys"`
	Mode   string   `json:"mode"`
}

func played(t *testing.T) (all vectors) {
	text, err := os.ReadFile("../vectors.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all.Requests) == 0 || len(all.Handlers) == 0 {
		t.Fatal("no vectors: ", err)
	}
	return all
}

// scripted has watermarks with the results of a vector, and a transaction that counts its ends.
type scripted struct {
	meets     []string
	rollbacks int
}

func (s *scripted) Raise(context.Context, Transaction, string, *Stamp, Compare) (bool, error) {
	met := s.meets[0]
	s.meets = s.meets[1:]
	if met == "error" {
		return false, errors.New("the database failed")
	}
	return met == "passes", nil
}

func (s *scripted) ExecContext(context.Context, string, ...any) (sql.Result, error) { return nil, nil }

func (s *scripted) Rollback() error {
	s.rollbacks++
	return nil
}

// exchange sends the fields exactly as they stand there, each character one byte.
func exchange(t *testing.T, handler http.Handler, method string, fields [][2]string) (*http.Response, []byte) {
	server := httptest.NewServer(handler)
	defer server.Close()
	line, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()
	text := method + " /pay?secret=1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
	for _, field := range fields {
		text += field[0] + ": " + latin1(field[1]) + "\r\n"
	}
	fmt.Fprint(line, text+"\r\n")
	reader := bufio.NewReader(line)
	response, err := http.ReadResponse(reader, &http.Request{Method: method})
	for err == nil && response.StatusCode < 200 {
		response, err = http.ReadResponse(reader, &http.Request{Method: method})
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, body
}

func latin1(text string) string {
	bytes := []byte{}
	for _, char := range text {
		bytes = append(bytes, byte(char))
	}
	return string(bytes)
}

// isAnswer checks for exactly the middleware's answer with this reason.
func (v *vectors) isAnswer(t *testing.T, name, reason string, response *http.Response, body []byte) {
	for _, answer := range v.Answers {
		if answer.Reason != reason {
			continue
		}
		var said map[string]any
		if err := json.Unmarshal(body, &said); err != nil {
			t.Errorf("%s: %v in %q", name, err, body)
		}
		wanted := map[string]any{"title": answer.Title, "status": float64(answer.Status), "reason": reason}
		fields := response.Header
		if response.StatusCode != answer.Status || !reflect.DeepEqual(said, wanted) ||
			fields.Get("Content-Type") != "application/problem+json" || fields.Get("Fencing-Refusal") != answer.Refusal {
			t.Errorf("%s: wanted %v, came %s %v %s", name, wanted, response.Status, fields, body)
		}
		return
	}
	t.Fatalf("%s: no answer is called %q", name, reason)
}

func TestRequestsAreReadAsTheContractSays(t *testing.T) {
	all := played(t)
	for _, vector := range all.Requests {
		compare := map[string]Compare{"": ByToken, "number": ByNumber}[vector.Compare]
		var read *accepted
		echo := HandlerFunc(func(w http.ResponseWriter, r *http.Request, fence *Fence) error {
			read = &accepted{Number: strconv.FormatInt(fence.Number, 10), Keys: fence.Keys, Mode: string(fence.Mode)}
			if token := string(fence.Token); token != "" {
				read.Token = &token
			}
			return fence.Claim(r.Context(), &scripted{})
		})
		marks := &scripted{meets: strings.Split(strings.Repeat("passes ", mostKeys), " ")}
		response, body := exchange(t, New(marks, Comparing(compare))(echo), "POST", vector.Fields)
		if vector.Refused != "" {
			all.isAnswer(t, vector.Name, vector.Refused, response, body)
		} else if response.StatusCode != 200 {
			t.Errorf("%s: %s %s", vector.Name, response.Status, body)
		}
		if !reflect.DeepEqual(read, vector.Accepted) {
			t.Errorf("%s: wanted %+v, read %+v", vector.Name, vector.Accepted, read)
		}
	}
}

var stamped = [][2]string{
	{"Fencing-Token", "v1-00000000000000ab-00000007-00000001"}, {"Fencing-Key", "a"}, {"Fencing-Mode", "exclusive"},
}

func TestAnswersAreHeldBackAsTheContractSays(t *testing.T) {
	all := played(t)
	for _, vector := range all.Handlers {
		marks, told := &scripted{meets: vector.Claims}, &strings.Builder{}
		stale := strings.Count(strings.Join(vector.Claims, " "), "stale")
		handler := HandlerFunc(func(w http.ResponseWriter, r *http.Request, fence *Fence) error {
			failed := errors.New("without a reason")
			for range vector.Claims {
				if err := fence.Claim(r.Context(), marks); err != nil {
					failed = err
				}
			}
			if vector.Status == 0 {
				return failed
			}
			w.Header().Set("X-Own", "1")
			w.WriteHeader(vector.Status)
			if vector.Status != http.StatusNoContent {
				fmt.Fprint(w, "the handler's")
			}
			return nil
		})
		middleware := New(marks, LogTo(log.New(told, "", 0)))
		response, body := exchange(t, middleware(handler), "POST", stamped)
		if status, own := vector.Sent.(float64); own {
			if response.StatusCode != int(status) || response.Header.Get("X-Own") != "1" {
				t.Errorf("%s: %s %s", vector.Name, response.Status, body)
			}
		} else {
			all.isAnswer(t, vector.Name, vector.Sent.(string), response, body)
			if response.Header.Get("X-Own") != "" {
				t.Errorf("%s: a field of an answer that is not given", vector.Name)
			}
		}
		words := fmt.Sprintf("POST /pay %s: answered %d without a claim: it may have taken effect", stamped[0][1], vector.Status)
		if strings.Contains(told.String(), words) != (vector.Sent == "unclaimed") {
			t.Errorf("%s: the log has %q", vector.Name, told)
		}
		if marks.rollbacks != stale {
			t.Errorf("%s: %d rollbacks for %d stale claims", vector.Name, marks.rollbacks, stale)
		}
	}
}
