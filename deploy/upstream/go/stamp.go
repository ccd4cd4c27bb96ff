package fencing

import (
	"net/http"
	"strconv"
	"strings"
)

// Mode says whether a request writes, or reads beside others that read.
type Mode string

const (
	Exclusive Mode = "exclusive"
	Shared    Mode = "shared"
)

// Stamp has the gateway's words on a request: the keys that it holds, the mode, and the token.
type Stamp struct {
	// Empty if only the number was sent, which is allowed if numbers are compared.
	Token  Token
	Number int64
	// Ascending, none twice.
	Keys []string
	Mode Mode
}

// name identifies the stamp in a log.
func (s *Stamp) name() string {
	if s.Token == "" {
		return strconv.FormatInt(s.Number, 10)
	}
	return string(s.Token)
}

// Bounds that no gateway exceeds.
const (
	mostKeys   = 64
	mostBytes  = 8192
	longestKey = 512
)

// presented has the values of the four fields, in the order in which they were sent.
type presented struct {
	token, number, key, mode []string
	// Whether there is a look-alike: a name that some server takes for one of the four.
	lookAlike bool
}

func (p *presented) nothing() bool {
	return !p.lookAlike && len(p.token)+len(p.number)+len(p.key)+len(p.mode) == 0
}

// present finds the four fields, and look-alikes of them.
func (s *settings) present(fields http.Header) *presented {
	found := &presented{}
	values := []*[]string{&found.token, &found.number, &found.key, &found.mode}
	for name, given := range fields {
		for at, wanted := range s.names() {
			switch {
			case lower(name) == lower(wanted):
				*values[at] = append(*values[at], given...)
			case plain(name) == plain(wanted):
				found.lookAlike = true
			}
		}
	}
	return found
}

// isMissing reports whether the compared field is missing in every spelling.
func (s *settings) isMissing(fields http.Header) bool {
	for name := range fields {
		if plain(name) == plain(s.compared()) {
			return false
		}
	}
	return true
}

// read takes the stamp from the fields of a request. Nothing is trimmed, and no part of it is guessed.
func (s *settings) read(fields http.Header, found *presented) (*Stamp, *problem) {
	if s.isMissing(fields) {
		return nil, tokenMissing
	}
	stamp, ok := &Stamp{}, !found.lookAlike && len(found.key) == 1 && len(found.mode) == 1
	if !ok || !stamp.readMarks(found) {
		return nil, tokenMalformed
	}
	stamp.Keys, ok = parseKeys(found.key[0])
	stamp.Mode = Mode(found.mode[0])
	if !ok || stamp.Mode != Exclusive && stamp.Mode != Shared {
		return nil, tokenMalformed
	}
	return stamp, nil
}

// readMarks takes token and number. Either may be missing here, and both together have to agree.
func (s *Stamp) readMarks(found *presented) bool {
	if len(found.token) > 1 || len(found.number) > 1 {
		return false
	}
	var ok bool
	if len(found.token) == 1 {
		if s.Token, ok = parseToken(found.token[0]); !ok {
			return false
		}
		s.Number = s.Token.Number()
	}
	if len(found.number) == 1 {
		number, ok := parseNumber(found.number[0])
		if !ok || s.Token != "" && number != s.Number {
			return false
		}
		s.Number = number
	}
	return true
}

func parseKeys(text string) ([]string, bool) {
	keys := strings.Split(text, ", ")
	if len(keys) > mostKeys {
		return nil, false
	}
	bytes := 0
	for at, key := range keys {
		bytes += len(key)
		// Go compares strings by their bytes.
		if !isKey(key) || at > 0 && keys[at-1] >= key || bytes > mostBytes {
			return nil, false
		}
	}
	return keys, true
}

func isKey(key string) bool {
	for at := 0; at < len(key); at++ {
		if key[at] < '!' || key[at] > '~' {
			return false
		}
	}
	return key != "" && len(key) <= longestKey
}

// plain is one spelling for all that some server takes for one name: CGI and its heirs make one variable of `-` and `_`.
func plain(name string) string {
	return strings.Map(func(char rune) rune {
		if char >= 'a' && char <= 'z' || char >= '0' && char <= '9' {
			return char
		}
		return '-'
	}, lower(name))
}

// lower changes ASCII only, unlike strings.ToLower.
func lower(name string) string {
	return strings.Map(func(char rune) rune {
		if char >= 'A' && char <= 'Z' {
			return char + ('a' - 'A')
		}
		return char
	}, name)
}
