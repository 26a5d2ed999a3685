// Package restart has no code, only tests: consumers in processes of their own are stopped, killed and frozen, over
// real connections and in real time.
package restart
