package fencing

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func moment(wall int64, boot *string, uptime *int64) Moment {
	now := Moment{WallMillis: wall}
	if boot != nil {
		now.Boot = *boot
	}
	if uptime != nil {
		now.UptimeMillis = *uptime
	}
	return now
}

// at sets the clock.
func at(now Moment) Option { return func(s *settings) { s.timing.now = func() Moment { return now } } }

var done = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "done") })

func TestNotAfterIsReadAsTheContractSays(t *testing.T) {
	all := played(t)
	if len(all.NotAfter) < 50 {
		t.Fatal("no vectors")
	}
	for _, vector := range all.NotAfter {
		var read *Deadline
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { read = DeadlineFromContext(r.Context()) })
		response, body := exchange(t, NewDeadline(at(Moment{WallMillis: -10000}))(handler), "POST", vector.Fields)
		if clock := response.Header.Get("Fencing-Clock"); clock != "-10000;error=500" {
			t.Errorf("%s: clock %q", vector.Name, clock)
		}
		if vector.Refused != "" {
			all.isAnswer(t, vector.Name, vector.Refused, response, body)
			if read != nil {
				t.Errorf("%s: the handler ran", vector.Name)
			}
			continue
		}
		wanted := moment(vector.Read.NotAfter, vector.Read.Boot, vector.Read.Uptime)
		if response.StatusCode != 200 || read == nil || read.NotAfter != wanted {
			t.Errorf("%s: %s %s %+v", vector.Name, response.Status, body, read)
		}
	}
}

func TestWhatIsInTimeIsDecidedAsTheContractSays(t *testing.T) {
	all := played(t)
	if len(all.InTime) < 20 {
		t.Fatal("no vectors")
	}
	for _, vector := range all.InTime {
		now := moment(vector.Now.Wall, vector.Now.Boot, vector.Now.Uptime)
		error := ClockError(time.Duration(vector.ClockError) * time.Millisecond)
		fields := [][2]string{{"Fencing-Not-After", vector.Value}}
		response, body := exchange(t, NewDeadline(at(now), error)(done), "POST", fields)
		if !vector.InTime {
			all.isAnswer(t, vector.Name, "expired", response, body)
		} else if response.StatusCode != 200 || string(body) != "done" {
			t.Errorf("%s: %s %s", vector.Name, response.Status, body)
		}
	}
}

func TestAnUnfencedMethodPassesWithoutADeadline(t *testing.T) {
	all := played(t)
	middleware := NewDeadline(Unfenced("GET"))(done)
	if response, _ := exchange(t, middleware, "GET", nil); response.StatusCode != 200 || response.Header.Get("Fencing-Clock") != "" {
		t.Error(response)
	}
	for _, one := range []struct {
		method, reason string
		fields         [][2]string
	}{
		{"POST", "not-after-missing", nil},
		{"GET", "not-after-missing", [][2]string{{"Fencing_Key", "a"}}},
		{"GET", "not-after-malformed", [][2]string{{"Fencing_Not_After", "5"}}},
		{"GET", "expired", [][2]string{{"Fencing-Not-After", "5"}}},
	} {
		response, body := exchange(t, middleware, one.method, one.fields)
		all.isAnswer(t, one.reason, one.reason, response, body)
	}
}

func TestAFenceLooksAtTheDeadlineFirst(t *testing.T) {
	all := played(t)
	late := [][2]string{{"Fencing-Not-After", "5"}}
	response, body := exchange(t, New(&scripted{}, quiet())(done), "POST", late)
	all.isAnswer(t, "not asked for", "token-missing", response, body)
	for value, reason := range map[string]string{"5": "expired", "never": "not-after-malformed"} {
		for _, fields := range [][][2]string{stamped, nil} {
			fields := append([][2]string{{"Fencing-Not-After", value}}, fields...)
			response, body := exchange(t, New(&scripted{}, ClockError(500*time.Millisecond), quiet())(done), "POST", fields)
			all.isAnswer(t, value, reason, response, body)
		}
	}
	soon := [][2]string{{"Fencing-Not-After", fmt.Sprint(time.Now().UnixMilli() + 3000)}}
	response, body = exchange(t, New(&scripted{}, ClockError(500*time.Millisecond), quiet())(done), "POST", soon)
	all.isAnswer(t, "in time", "token-missing", response, body)
	response, body = exchange(t, New(&scripted{}, ClockError(time.Minute), quiet())(done), "POST", soon)
	all.isAnswer(t, "within the clock error", "expired", response, body)
}

func TestAHandlerThatWaitsMayAskAgain(t *testing.T) {
	now := Moment{WallMillis: 1000}
	clock := func(s *settings) { s.timing.now = func() Moment { return now } }
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deadline := DeadlineFromContext(r.Context())
		before := deadline.IsOver()
		now.WallMillis = 1500
		if before || !deadline.IsOver() {
			t.Error("a deadline that does not pass")
		}
	})
	exchange(t, NewDeadline(clock, ClockError(0))(handler), "POST", [][2]string{{"Fencing-Not-After", "1500"}})
}

func TestTheClockOfTheKernelIsReadWhereItIsThatOfTheSender(t *testing.T) {
	clock := machineClock()
	first, second := clock(), clock()
	if first.Boot == "" || first.Boot != second.Boot || second.UptimeMillis < first.UptimeMillis {
		t.Error(first, second)
	}
	for text, wanted := range map[string]int64{"651.13 294.76\n": 651140, "0.00 0.00\n": 10, "651 2": 0, "-1.00 2": 0, "": 0} {
		if uptime, ok := parseUptime(text); ok != (wanted > 0) || ok && uptime != wanted {
			t.Error(text, uptime)
		}
	}
	const mount, zero = "22 1 0:20 / /proc rw - proc proc rw\n", "monotonic           0         0\nboottime            0         0\n"
	for _, one := range []struct {
		id, offsets, mounts string
		known               bool
	}{
		{"b\n", zero, mount, true},
		{"b\n", "", mount, true},
		{"b\n", strings.Replace(zero, " 0  ", "-9  ", 1), mount, false},
		{"b\n", zero, mount + "9 2 0:5 /proc/uptime /proc/uptime rw - fuse.lxcfs lxcfs rw\n", false},
		{"b\n", zero, mount + "9 2 0:5 /x /proc/sys/kernel/random/boot_id ro - tmpfs x rw\n", false},
		{"b\n", zero, "", false},
		{"", zero, mount, false},
	} {
		proc := t.TempDir()
		for name, text := range map[string]string{"sys/kernel/random/boot_id": one.id, "self/timens_offsets": one.offsets, "self/mountinfo": one.mounts} {
			if text == "" {
				continue
			}
			file := filepath.Join(proc, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if known := bootID(proc) != ""; known != one.known {
			t.Errorf("%+v", one)
		}
	}
}
