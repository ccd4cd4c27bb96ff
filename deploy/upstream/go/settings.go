package fencing

import (
	"fmt"
	"log"
	"time"
)

// Compare says what is compared with the last executed request of a key.
type Compare int

const (
	// ByToken asks for a greater token, and so refuses duplicates as well.
	ByToken Compare = iota
	// ByNumber asks for a number that is not smaller, for services that get several requests of one tenure.
	ByNumber
)

// Option changes a setting of New.
type Option func(*settings)

// Comparing says what is compared. Default: tokens.
func Comparing(compare Compare) Option {
	return func(s *settings) { s.compare = compare }
}

// Fields sets the names of the token field and the number field, as `fields:` of the policy does.
func Fields(token, number string) Option {
	return func(s *settings) { s.token, s.number = token, number }
}

// Unfenced lets requests of these methods pass without a fence if they have none of the fields.
func Unfenced(methods ...string) Option {
	return func(s *settings) { s.unfenced = append(s.unfenced, methods...) }
}

// ClockError sets the most by which the wall clocks of sender and service differ, for requests with Fencing-Not-After. It is
// subtracted from that moment, except on the machine of the sender. Default of NewDeadline: 500 ms. With it the fence of New looks
// at that moment as well, before the token is compared: a late request is then answered expired, also if its token is stale.
func ClockError(most time.Duration) Option {
	return func(s *settings) { s.timing.clockError, s.looksAtMoment = most, true }
}

// LogTo says where mistakes of the service are logged. Default: the standard logger.
func LogTo(logger *log.Logger) Option {
	return func(s *settings) { s.log = logger }
}

type settings struct {
	token, number string
	compare       Compare
	unfenced      []string
	log           *log.Logger
	timing        timing
	looksAtMoment bool
}

func newSettings(options []Option) *settings {
	s := &settings{token: "Fencing-Token", number: "Fencing-Number", log: log.Default(), timing: timing{machineClock(), defaultClockError}}
	for _, option := range options {
		option(s)
	}
	if s.timing.clockError < 0 {
		panic("fencing: a clock error is not negative")
	}
	seen := map[string]bool{}
	for _, name := range s.names() {
		if seen[plain(name)] {
			panic(fmt.Sprintf("fencing: two fields are called %s", name))
		}
		seen[plain(name)] = true
	}
	return s
}

// In the order of presented's fields.
func (s *settings) names() [4]string {
	return [4]string{s.token, s.number, "Fencing-Key", "Fencing-Mode"}
}

func (s *settings) compared() string {
	if s.compare == ByNumber {
		return s.number
	}
	return s.token
}

func (s *settings) isUnfenced(method string) bool {
	for _, other := range s.unfenced {
		if other == method {
			return true
		}
	}
	return false
}
