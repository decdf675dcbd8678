// What the file registry does and keeps for each open, with many versions of a file behind it.
// Steps and bytes are counted here, so the machine's speed does not matter.
#include <unistd.h>

#include <string>
#include <vector>

#include "fault/faulty_environment.hpp"
#include "files/file_registry.hpp"
#include "hub/hub.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

using host::file_registry;
using host::open_reply;

// Another program changes each file whenever `version` grows.
class changing_files final : public fault::faulty_environment {
public:
    int facts(int handle, host::file_facts& out) override {
        const int code = faulty_environment::facts(handle, out);
        out.identity.modified_ns += version;
        out.identity.changed_ns += version;
        out.made_ns = 1;  // on every file system
        return code;
    }
    std::int64_t version = 0;
};

class registry_growth : public testing::Test {
protected:
    static constexpr std::uint32_t versions = 200;

    void SetUp() override {
        write_file(root / "a", pattern(1, 5000));
        host::registry_limits limits{2 * versions, 12, 4, 1 << 16, 256, 100};
        limits.writable = true;
        files = std::make_unique<file_registry>(env, shared, limits);
        ASSERT_TRUE(files->set_roots({root.path()}).ok());
    }
    open_reply must_open(const std::string& name) {
        const open_reply reply = files->open(name, 0, 0);
        EXPECT_EQ(reply.result, 0) << name;
        return reply;
    }
    // A group has each of them open.
    std::vector<open_reply> open_all_versions() {
        std::vector<open_reply> out;
        for (std::uint32_t i = 0; i < versions; ++i, ++env.version) out.push_back(must_open("a"));
        return out;
    }

    temporary_folder root;
    changing_files env;
    host::hub shared;
    std::unique_ptr<file_registry> files;
};

}  // namespace

TEST_F(registry_growth, an_open_looks_at_no_older_version_without_need) {
    open_all_versions();
    EXPECT_EQ(files->live_files(), versions);
    must_open("a");
    EXPECT_EQ(files->older_looks(), 0u);
}

TEST_F(registry_growth, versions_are_retired_without_a_look_at_the_others) {
    for (const open_reply& version : open_all_versions())
        EXPECT_EQ(files->retire(version.slot, version.generation), 0);
    EXPECT_EQ(files->live_files(), 0u);
    EXPECT_EQ(files->older_looks(), 0u);
}

// Whichever open brings the new name: that of a changed file, or that of an unchanged one.
TEST_F(registry_growth, older_versions_get_a_new_path_once) {
    const auto all = open_all_versions();
    std::uint64_t looks = 0;
    for (const bool changes : {true, false}) {
        const std::string name = changes ? "b" : "c";
        ASSERT_EQ(::rename((root / (changes ? "a" : "b")).c_str(), (root / name).c_str()), 0);
        if (!changes) --env.version;
        for (int i = 0; i < 10; ++i, env.version += changes ? 1 : 0) must_open(name);
        for (const open_reply& version : all)
            EXPECT_EQ(files->path_of(version.slot, version.generation), root / name);
        EXPECT_LE(files->older_looks() - looks, 2u * versions) << name;
        looks = files->older_looks();
    }
}

}  // namespace penstock::test
