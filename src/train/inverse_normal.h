// The inverse of the standard normal distribution function: M. J. Wichura, "Algorithm AS 241: The
// Percentage Points of the Normal Distribution", Applied Statistics 37 (1988), routine PPND16. Its
// relative error is about 1e-16.
//
// Every machine computes the same bits: everything is in double, with + - * / and square roots
// only, which IEEE 754 rounds in one way. No multiplication and addition in one instruction, and no
// logarithm of the C library, whose last bits differ between its versions.
#pragma once

namespace hps {

// The value that a standard normal variable is below with this probability. Cost: about 20 ns, in
// the tails 40. REQUIRES: 0 <= probability <= 1; 0 and 1 give finite values, below -37 and above
// 37.
double InverseNormal(double probability);

}  // namespace hps
