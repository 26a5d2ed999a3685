// Package bench measures what consuming a queue costs: in requests, CPU and
// memory, beside loops written by hand and another library. It has nothing but
// tests and benchmarks; README.md has the results and how to repeat them.
package bench
