// penstock-matmul: multiplies two matrices in files. See request.cpp for what it promises.
#include "common/product_main.hpp"
#include "report.hpp"

int main(int argc, char** argv) {
    using namespace penstock::matmul;
    return penstock::apps::run_program<session, make_report, request>("penstock-matmul", argc,
                                                                      argv);
}
