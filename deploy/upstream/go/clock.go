package fencing

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// resolutionMillis: /proc/uptime has hundredths of a second and rounds down; the true time is less than this above it.
const resolutionMillis = 10

var uptimeForm = regexp.MustCompile(`^([0-9]{1,12})\.([0-9]{2}) `)

// machineClock reads the clocks of this machine. The boot id is read once: it does not change while a process runs.
func machineClock() func() Moment {
	boot := bootID("/proc")
	return func() Moment {
		now := Moment{WallMillis: time.Now().UnixMilli()}
		if boot == "" {
			return now
		}
		text, err := os.ReadFile("/proc/uptime")
		if err != nil {
			return now
		}
		if uptime, ok := parseUptime(string(text)); ok {
			now.Boot, now.UptimeMillis = boot, uptime
		}
		return now
	}
}

// bootID is the boot id, if `uptime` beside it shows the clock of this boot. It is empty in a time namespace with an offset, and
// where something is mounted over the file, as LXCFS does. proc: where procfs is mounted.
func bootID(proc string) string {
	id, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return ""
	}
	offsets, err := os.ReadFile(filepath.Join(proc, "self/timens_offsets"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // A kernel without time namespaces has no such file.
		return ""
	}
	for _, line := range strings.Split(string(offsets), "\n") {
		if words := strings.Fields(line); len(words) > 0 && (len(words) != 3 || words[1] != "0" || words[2] != "0") {
			return ""
		}
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if words := strings.Split(line, " "); len(words) > 4 &&
			(words[4] == "/proc/uptime" || strings.HasPrefix(words[4], "/proc/sys/kernel/random")) {
			return ""
		}
	}
	return strings.TrimSpace(string(id))
}

// parseUptime reads `651.13 294.76` in milliseconds, rounded up to the safe side.
func parseUptime(text string) (int64, bool) {
	parts := uptimeForm.FindStringSubmatch(text)
	if parts == nil {
		return 0, false
	}
	hundredths, err := strconv.ParseInt(parts[1]+parts[2], 10, 64)
	return hundredths*10 + resolutionMillis, err == nil
}
