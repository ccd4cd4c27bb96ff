package fencing

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const notAfterField = "Fencing-Not-After"

// longestNotAfter is the longest value of the field, in bytes.
const longestNotAfter = 128

// defaultClockError is how far the wall clocks of sender and service may differ, where nothing else is said.
const defaultClockError = 500 * time.Millisecond

// Moment is one moment, as the clocks of one machine tell it.
type Moment struct {
	// WallMillis counts from 1970-01-01 UTC.
	WallMillis int64
	// Boot is the boot id of a kernel, and UptimeMillis its CLOCK_BOOTTIME. Boot is empty if nothing is known of it.
	Boot         string
	UptimeMillis int64
}

// The values of RFC 9651 that a parameter may have; the longer form of a number comes first.
const notAfterItem = `"(?:[ !#-\[\]-~]|\\["\\])*"|-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}` +
	"|[A-Za-z*][!#$%&'*+.^_`|~:/0-9A-Za-z-]*" +
	`|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"`

var (
	notAfterForm      = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})((?:; *[a-z*][a-z0-9_.*-]*(?:=(?:` + notAfterItem + `))?)*)$`)
	notAfterParameter = regexp.MustCompile(`; *([a-z*][a-z0-9_.*-]*)(?:=(` + notAfterItem + `))?`)
	millisForm        = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})$`)
)

// parseNotAfter reads `1795727217123;boot="<id>";uptime=<ms>`; parameters with other names are ignored.
func parseNotAfter(value string) (moment Moment, ok bool) {
	if len(value) > longestNotAfter {
		return moment, false
	}
	form := notAfterForm.FindStringSubmatch(value)
	if form == nil {
		return moment, false
	}
	found := map[string][]string{}
	for _, one := range notAfterParameter.FindAllStringSubmatch(form[2], -1) {
		found[one[1]] = append(found[one[1]], one[2])
	}
	moment.WallMillis, _ = strconv.ParseInt(form[1], 10, 64) // 15 digits.
	boots, uptimes := found["boot"], found["uptime"]
	if len(boots)+len(uptimes) == 0 {
		return moment, true
	}
	if len(boots) != 1 || len(uptimes) != 1 || !strings.HasPrefix(boots[0], `"`) || !millisForm.MatchString(uptimes[0]) {
		return Moment{}, false
	}
	moment.Boot = boots[0][1 : len(boots[0])-1]
	moment.UptimeMillis, _ = strconv.ParseInt(uptimes[0], 10, 64) // 15 digits.
	return moment, true
}

// isInTime reports whether a request may be begun now: only if it is certainly still in time. On the machine of the sender the kernel's
// clock decides, without an error; elsewhere the wall clock does.
func (notAfter Moment) isInTime(now Moment, clockError time.Duration) bool {
	if notAfter.Boot != "" && notAfter.Boot == now.Boot {
		return now.UptimeMillis < notAfter.UptimeMillis
	}
	return now.WallMillis+clockError.Milliseconds() < notAfter.WallMillis
}

// Deadline is the moment after which a request must not be begun any more.
type Deadline struct {
	NotAfter Moment
	timing   timing
}

// IsOver reports whether the work must not be begun any more. Check it again after a wait of your own, as for a connection to the
// database.
func (d *Deadline) IsOver() bool {
	return !d.NotAfter.isInTime(d.timing.now(), d.timing.clockError)
}

// timing is the clock of this machine, and how far the one of the sender may be from it.
type timing struct {
	now        func() Moment
	clockError time.Duration
}

// read gives the deadline of a request that is in time; nil if the field is in no spelling there.
func (t timing) read(fields http.Header) (*Deadline, *problem) {
	var values []string
	isAlike := false
	for name, given := range fields {
		switch {
		case lower(name) == lower(notAfterField):
			values = append(values, given...)
		case plain(name) == plain(notAfterField):
			isAlike = true
		}
	}
	if len(values) == 0 && !isAlike {
		return nil, nil
	}
	if len(values) != 1 || isAlike {
		return nil, notAfterMalformed
	}
	moment, ok := parseNotAfter(values[0])
	if !ok {
		return nil, notAfterMalformed
	}
	deadline := &Deadline{NotAfter: moment, timing: t}
	if deadline.IsOver() {
		return nil, expired
	}
	return deadline, nil
}

// tell says on an answer what this clock shows: the sender measures by it how far the two clocks differ.
func (t timing) tell(fields http.Header) {
	fields.Set(clockField, strconv.FormatInt(t.now().WallMillis, 10)+";error="+strconv.FormatInt(t.clockError.Milliseconds(), 10))
}

const clockField = "Fencing-Clock"
