package sqstest

import (
	"encoding/base64"
	"encoding/binary"
	"time"
)

// handleLife is how long a receipt handle is good for, and how long one delivery can be hidden (V5, V8).
const handleLife = 12 * time.Hour

// receipt is what a receipt handle says. It is all in the handle: the server remembers none, and still knows the
// handles of messages long gone.
type receipt struct {
	queue      uint32
	serial     uint64 // of the message
	generation uint32 // which of its deliveries
	receivedAt time.Time
}

// handlePrefix makes handles begin with AQEB, as SQS's do (M3).
const handlePrefix = "\x01\x01\x01"

const handleSize = len(handlePrefix) + 8 + 4 + 8 + 4 + 8

func (s *Server) handle(r receipt) string {
	b := make([]byte, 0, handleSize)
	b = append(b, handlePrefix...)
	b = binary.BigEndian.AppendUint64(b, s.seed)
	b = binary.BigEndian.AppendUint32(b, r.queue)
	b = binary.BigEndian.AppendUint64(b, r.serial)
	b = binary.BigEndian.AppendUint32(b, r.generation)
	b = binary.BigEndian.AppendUint64(b, uint64(r.receivedAt.UnixNano()))
	return base64.StdEncoding.EncodeToString(b)
}

// parseHandle is false for what this server never issued.
func (s *Server) parseHandle(handle string) (receipt, bool) {
	b, err := base64.StdEncoding.DecodeString(handle)
	if err != nil || len(b) != handleSize || string(b[:3]) != handlePrefix {
		return receipt{}, false
	}
	b = b[3:]
	r := receipt{
		queue:      binary.BigEndian.Uint32(b[8:]),
		serial:     binary.BigEndian.Uint64(b[12:]),
		generation: binary.BigEndian.Uint32(b[20:]),
		receivedAt: time.Unix(0, int64(binary.BigEndian.Uint64(b[24:]))),
	}
	return r, binary.BigEndian.Uint64(b) == s.seed
}

// messageID is a function of the serial number, so that the handle of a deleted message still tells it.
func (s *Server) messageID(serial uint64) string {
	return uuid(mix(s.seed+2*serial), mix(s.seed+2*serial+1))
}

// mix is the finalizer of SplitMix64: neighbours come out unlike each other, and no two come out equal.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// describeHandle is the log's entry for a handle.
func (s *Server) describeHandle(handle string) Entry {
	e := Entry{ReceiptHandle: handle}
	r, ok := s.parseHandle(handle)
	if !ok {
		return e
	}
	e.MessageID = s.messageID(r.serial)
	for _, q := range s.queues {
		if q.serial == r.queue {
			if m := q.messages[r.serial]; m != nil {
				e.GroupID = m.group
			}
		}
	}
	return e
}

// resolve finds the message that a handle acts on: whatever its generation (V8). The message is nil if it is gone.
func (q *queue) resolve(handle string) (*message, receipt, error) {
	if handle == "" {
		return nil, receipt{}, errMissing("ReceiptHandle")
	}
	r, ok := q.server.parseHandle(handle)
	if !ok {
		return nil, r, receiptHandleIsInvalid.errorf("The input receipt handle %q is not a valid receipt handle.", handle)
	}
	if r.queue != q.serial {
		return nil, r, receiptHandleIsInvalid.errorf("The receipt handle %q is not valid for this queue.", handle)
	}
	return q.messages[r.serial], r, nil
}

// expired reports whether a handle has lost its power over the message: after 12 hours on any queue (V8, D5), and on
// a FIFO queue as soon as its delivery is over (D4, F6).
func (q *queue) expired(m *message, r receipt) bool {
	if q.server.now.Sub(r.receivedAt) >= handleLife {
		return true
	}
	return q.fifo && (m.state != InFlight || m.generation != r.generation)
}

func errExpired(handle string) *apiError {
	e := errInvalid(handle, "ReceiptHandle", "The receipt handle has expired.")
	e.inBatch = receiptHandleIsInvalid.errorf("The receipt handle has expired") // B4: another code, and no period
	return e
}

// delete removes the message of a handle. That it is gone already is no error (D1, D6).
func (q *queue) delete(handle string) error {
	m, r, err := q.resolve(handle)
	if err != nil {
		return err
	}
	if m == nil {
		return nil
	}
	if q.expired(m, r) {
		return errExpired(handle)
	}
	q.remove(m)
	return nil
}

// changeVisibility sets when the message of a handle is visible again.
func (q *queue) changeVisibility(handle string, seconds int) error {
	m, r, err := q.resolve(handle)
	if err != nil {
		return err
	}
	if seconds < 0 || seconds > maxVisibility {
		return errRange("VisibilityTimeout", seconds, maxVisibility)
	}
	if m == nil {
		return errInvalid(handle, "ReceiptHandle", "Message does not exist or is not available for visibility timeout change.")
	}
	if q.expired(m, r) {
		return errExpired(handle)
	}
	if m.state != InFlight {
		return nil // V8: on a standard queue it is accepted, and changes nothing
	}
	until := q.server.now.Add(time.Duration(seconds) * time.Second)
	if until.Sub(m.receivedAt) > handleLife {
		return errInvalid(seconds, "VisibilityTimeout",
			"Total VisibilityTimeout for the message is beyond the limit [43200 seconds]") // V6
	}
	m.changed = true
	if seconds == 0 {
		q.show(m)
	} else {
		q.hide(m, until)
	}
	return nil
}
