//go:build race

package bench

// raceDetector tells that memory is not what users see: every stack is larger.
const raceDetector = true
