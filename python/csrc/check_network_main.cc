// Compiles a network and runs it once, for the extension beside which it lies: what crashes the
// engine, hangs it or takes all memory, ends here and not in the interpreter.
#include "inference/network_check.h"

int main() { return hps::RunNetworkCheck(); }
