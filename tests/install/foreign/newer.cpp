// Compiled as C++23 by the foreign project's wish.
#include <penstock/penstock.hpp>

static_assert(__cplusplus > 202002L, "Penstock took the project's language standard away");

int main() { return penstock::version()[0] == '0' ? 0 : 1; }
