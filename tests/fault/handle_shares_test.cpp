// How the descriptors of a process are shared out.
#include <gtest/gtest.h>

#include "service/handle_shares.hpp"

namespace penstock::fault {

TEST(handle_shares, of_all_devices_leave_the_program_a_fifth) {
    for (const std::uint64_t limit : {256u, 1024u, 65536u, 1048576u})
        for (const std::size_t devices : {1u, 2u, 8u})
            for (const std::size_t sets_each : {1u, 2u})
                for (const bool direct : {false, true}) {
                    const std::size_t of_files = host::registry_handles(limit, direct, devices),
                                      of_windows = host::window_handles(limit, devices * sets_each);
                    EXPECT_LE(devices * ((direct ? 2 : 1) * of_files + sets_each * of_windows),
                              limit - limit / 5)
                        << limit << ", " << devices;
                    EXPECT_GE(of_files, 8u);
                    EXPECT_GE(of_windows, 1u);
                }
    EXPECT_EQ(host::window_handles(1024, 1), 128u);
    EXPECT_EQ(host::window_handles(1024, 8), 16u);
    EXPECT_EQ(host::window_handles(1048576, 1), 4096u);
    EXPECT_EQ(host::registry_handles(1024, false, 8), 64u);
    EXPECT_EQ(host::registry_handles(1024, true, 8), 42u);
}

}  // namespace penstock::fault
