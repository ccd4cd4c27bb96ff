// Holds a lock through a gateway with the standard library: acquires, calls, renews, loses, is refused, releases.
// FENCEGATE_URL, FENCEGATE_TOKEN, and KEY: account/7, where the policy fences POST /pay/7 by it.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"
)

const leases = "/.fencegate/v1/leases"

var url, token, key = os.Getenv("FENCEGATE_URL"), os.Getenv("FENCEGATE_TOKEN"), os.Getenv("KEY")

type lease struct {
	ID        string `json:"lease"`
	Reference string `json:"reference"`
	Token     string `json:"token"`
	HeldForMs int64  `json:"held_for_ms"`
	// This clock stands still while the machine is suspended. On such a machine read /proc/uptime instead.
	until time.Time
}

// send gives the answer and its body, and ends the program where there is none.
func send(method, path, id, body string) (*http.Response, []byte) {
	request, err := http.NewRequest(method, url+path, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if id != "" {
		request.Header.Set("Fencing-Lease", id)
	} else {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		log.Fatal(err)
	}
	return answer, said
}

// ask reads the answer to a question about the lease.
func (l *lease) ask(path, body string) {
	sent := time.Now()
	answer, said := send("POST", leases+path, l.ID, body)
	if answer.StatusCode >= 300 {
		log.Fatal(answer.Status, " ", string(said))
	}
	if err := json.Unmarshal(said, l); err != nil {
		log.Fatal(err)
	}
	// The promised time counts from the moment in which the question was sent.
	l.until = sent.Add(time.Duration(l.HeldForMs) * time.Millisecond)
}

func acquire(ttlMs, waitMs int) *lease {
	l := new(lease)
	l.ask("", fmt.Sprintf(`{"keys": [%q], "ttl_ms": %d, "wait_ms": %d}`, key, ttlMs, waitMs))
	fmt.Println("held", l.Token)
	return l
}

func (l *lease) renew() {
	l.ask("/"+l.Reference+"/renew", "")
	fmt.Println("renewed")
}

// outside is work that does not go through the gateway: no step begins when the promised time is over.
func (l *lease) outside() {
	steps := 0
	for ; steps < 3 && time.Now().Before(l.until); steps++ {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("outside", steps)
}

// call is work that goes through the gateway: the gateway stamps the next token on it, or refuses it.
func (l *lease) call() {
	_, account, _ := strings.Cut(key, "/")
	answer, said := send("POST", "/pay/"+account, l.ID, "")
	word := answer.Header.Get("Fencing-Token")
	if answer.StatusCode != http.StatusOK {
		var problem struct{ Reason string }
		if err := json.Unmarshal(said, &problem); err != nil {
			log.Fatal(err)
		}
		word = problem.Reason
	}
	fmt.Println("call", answer.StatusCode, word)
}

func (l *lease) release() {
	answer, _ := send("DELETE", leases+"/"+l.Reference, l.ID, "")
	if answer.StatusCode == http.StatusNoContent {
		fmt.Println("released")
	}
}

func main() {
	first := acquire(2000, 0)
	first.outside()
	first.call()
	first.call()
	first.renew()

	// Nothing renews the lease from here, as if this process slept. Another client gets the lock when the ttl is over.
	second := acquire(10_000, 8000)
	first.outside()
	first.call()

	// The second lease has waited, so its promised time may be over. The answer to a renewal decides.
	second.renew()
	second.call()
	second.release()
}
