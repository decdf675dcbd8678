// The same launch as in launch_test.cu, by the plain C++ compiler.
#include "device/launch_test.hpp"

namespace penstock::test {

int launch_from_plain_file(runtime& rt, std::uint64_t groups, const count_groups_of_both& work) {
    return launch(rt, groups, work);
}

}  // namespace penstock::test
