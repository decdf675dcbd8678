#include "device/cufile.hpp"

#include <dlfcn.h>

#include <type_traits>
#include <vector>

namespace penstock::host::cufile {

namespace {

struct named_code {
    int code;
    const char* words;
};

// Those that an operator can do something about.
constexpr named_code known_codes[] = {
    {5001, "the nvidia-fs module is not loaded, and compatibility mode is off in cufile.json"},
    {5004, "nvidia-fs has another version than cuFile wants"},
    {5007, "the platform is not supported"},
    {5008, "the file's storage is not supported"},
    {5009, "the GPU is not supported"},
    {5010, "nvidia-fs failed"},
    {5012, "the memory is not the device's"},
    {5018, "the file is no regular file"},
    {5020, "the file is not open for O_DIRECT"},
    {5025, "permission denied"},
    {5034, "switched off for this file in cufile.json"},
    {5036, "no more device memory can be pinned"},
};

}  // namespace

bool load(const std::string& name, functions& out, std::string& why) {
    std::vector<std::string> names{name};
    if (name.empty()) names = {"libcufile.so.0", "libcufile.so"};
    void* library = nullptr;
    for (const std::string& tried : names) {
        library = ::dlopen(tried.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library != nullptr) break;
        const char* const said = ::dlerror();
        if (why.empty()) why = said != nullptr ? said : tried + " cannot be loaded";
    }
    if (library == nullptr) return false;
    why.clear();
    const auto find = [&](const char* symbol, auto& to, bool needed) {
        to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(::dlsym(library, symbol));
        if (to == nullptr && needed && why.empty())
            why = std::string("the library has no ") + symbol;
    };
    find("cuFileDriverOpen", out.open, true);
    find("cuFileDriverGetProperties", out.get_properties, true);
    find("cuFileHandleRegister", out.add_file, true);
    find("cuFileHandleDeregister", out.remove_file, true);
    find("cuFileBufRegister", out.add_buffer, true);
    find("cuFileBufDeregister", out.remove_buffer, true);
    find("cuFileRead", out.read, true);
    find("cuFileGetVersion", out.get_version, false);
    find("cuFileDriverGetP2PFlags", out.get_ways, false);
    return why.empty();
}

std::string text_of(const error& e) {
    std::string out = "cuFile error " + std::to_string(e.code);
    if (e.code == cuda_failed) return out + ", CUDA error " + std::to_string(e.cuda);
    for (const named_code& known : known_codes)
        if (known.code == e.code) out += std::string(": ") + known.words;
    return out;
}

}  // namespace penstock::host::cufile
